import Glibc

/// A file that only this user can access, deleted with its object.
final class TemporaryFile {
    let path: String

    init(bytes: [UInt8]) throws {
        path = "/tmp/SocketTLSTests-\(getpid())-\(UInt64.random(in: 0...UInt64.max))"
        guard let file = fopen(path, "w") else { throw TestFailure(what: path) }
        fchmod(fileno(file), 0o600)
        fwrite(bytes, 1, bytes.count, file)
        fclose(file)
    }

    init(_ text: String) throws {
        path = "/tmp/SocketTLSTests-\(getpid())-\(UInt64.random(in: 0...UInt64.max))"
        try replace(with: text)
    }

    func replace(with text: String) throws {
        guard let file = fopen(path, "w") else { throw TestFailure(what: path) }
        fchmod(fileno(file), 0o600)
        fputs(text, file)
        fclose(file)
    }

    deinit { unlink(path) }
}
