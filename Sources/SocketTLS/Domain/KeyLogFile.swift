// Rules of the key log:
//  1. There is none unless the settings name a file. The variable SSLKEYLOGFILE is not read: someone who sets
//     the environment of a process must not be able to read its traffic.
//  2. A file that cannot be opened is an error when the context is made.
//  3. A line is one system call, in append mode: lines of several threads and processes do not mix.
//  4. The secrets are not copied: they go from OpenSSL's memory to the kernel.

internal import COpenSSL
internal import Glibc

/// The file to which the secrets of a context's connections are appended.
final class KeyLogFile: Sendable {
    private let descriptor: Int32

    /// Opens the file, or makes it: for its owner only. Others must not be able to read one that is there,
    /// and the path must not end in a symbolic link, which someone else may have put there.
    init(path: String) throws(TLSError) {
        guard !path.isEmpty, !path.utf8.contains(0) else {
            throw Self.invalid(path, "the path is empty, or contains a NUL character")
        }
        // Without O_NONBLOCK a pipe without a reader would block.
        let opened = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW, 0o600)
        guard opened >= 0 else {
            throw Self.invalid(path, errno == ELOOP ? "it is a symbolic link" : String(cString: strerror(errno)))
        }
        if let reason = Self.refusal(of: opened) {
            close(opened)
            throw Self.invalid(path, reason)
        }
        // Not before: `deinit` runs for an object that has all its properties, also when `init` throws.
        descriptor = opened
    }

    /// Why the secrets must not be written to this file.
    private static func refusal(of descriptor: Int32) -> String? {
        var facts = stat()
        // Writing to a pipe whose reader has gone would end the process (SIGPIPE).
        guard fstat(descriptor, &facts) == 0, facts.st_mode & S_IFMT != S_IFIFO else { return "it is a pipe" }
        let isPrivate = facts.st_mode & 0o077 == 0 && facts.st_uid == geteuid()
        guard isPrivate || facts.st_mode & S_IFMT != S_IFREG else {
            return "others may read it: it has to belong to this user, with the mode 600"
        }
        return nil
    }

    deinit { close(descriptor) }

    /// Appends the secrets of each connection of `context`, which must not outlive this object.
    func observe(_ context: OpaquePointer) throws(TLSError) {
        try OpenSSLCall.requireSuccess("SSL_CTX_set_ex_data") {
            SSL_CTX_set_ex_data(context, Self.place, Unmanaged.passUnretained(self).toOpaque())
        }
        SSL_CTX_set_keylog_callback(context) { ssl, line in
            guard let ssl, let line, let file = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), KeyLogFile.place) else { return }
            Unmanaged<KeyLogFile>.fromOpaque(file).takeUnretainedValue().append(line)
        }
    }

    /// The application data of the context belongs to the tickets.
    private static let place = COpenSSL_CTX_newIndex()

    /// A disk that is full loses lines, and nothing else.
    private func append(_ line: UnsafePointer<CChar>) {
        withUnsafePointer(to: UInt8(ascii: "\n")) { end in
            var parts = [
                iovec(iov_base: UnsafeMutableRawPointer(mutating: line), iov_len: strlen(line)),
                iovec(iov_base: UnsafeMutableRawPointer(mutating: end), iov_len: 1),
            ]
            while writev(descriptor, &parts, 2) < 0, errno == EINTR {}
        }
    }

    private static func invalid(_ path: String, _ reason: String) -> TLSError {
        TLSError(
            .invalidSettings, "The TLS settings cannot be used: keyLogFile \"\(path.printable)\" cannot be opened: \(reason).",
            operation: "open")
    }
}
