internal import Glibc

/// A new file with PEM text in it.
enum PEMFile {
    /// Makes `directory` if it is missing (but not its parents), and a file in it that must not be there yet;
    /// answers its path.
    static func write(
        _ text: String, named name: String, to directory: String, isSecret: Bool
    ) throws(CertificateAuthorityError) -> String {
        guard mkdir(directory, 0o700) == 0 || errno == EEXIST else { throw failure("mkdir", directory) }
        let path = directory + "/" + name
        let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, isSecret ? 0o600 : 0o644)
        guard descriptor >= 0 else { throw failure("open", path) }
        defer { close(descriptor) }
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if written < 0 && errno == EINTR { continue }
            guard written > 0 else { throw failure("write", path) }
            rest = rest.dropFirst(written)
        }
        return path
    }

    private static func failure(_ operation: String, _ path: String) -> CertificateAuthorityError {
        let number = errno
        return CertificateAuthorityError(
            .fileNotWritten, "\(path) was not written: \(String(cString: strerror(number))).",
            operation: operation, errorNumber: number)
    }
}
