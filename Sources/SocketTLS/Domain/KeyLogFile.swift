// Rules for the key log:
//  1. Secrets are logged only if the settings name a file. The variable SSLKEYLOGFILE is not read: someone
//     who controls a process's environment must not be able to read its traffic.
//  2. If the file cannot be opened, creating the context fails.
//  3. Each line is one system call in append mode, so lines from several threads and processes do not mix.
//  4. Secrets are not copied: they are written directly from OpenSSL's memory to the kernel.

internal import COpenSSL
internal import Glibc

final class KeyLogFile: Sendable {
    private let descriptor: Int32

    /// Opens the file, or creates it with access for its owner only. An existing file must not be readable by
    /// other users. The path must not end in a symbolic link, which another user may have created.
    init(path: String) throws(TLSError) {
        guard !path.isEmpty, !path.utf8.contains(0) else {
            throw Self.invalid(path, "the path is empty or contains a NUL character")
        }
        // Without O_NONBLOCK, opening a pipe that has no reader would block.
        let opened = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW, 0o600)
        guard opened >= 0 else {
            throw Self.invalid(path, errno == ELOOP ? "it is a symbolic link" : String(cString: strerror(errno)))
        }
        if let reason = Self.refusal(of: opened) {
            close(opened)
            throw Self.invalid(path, reason)
        }
        // Assigned last: once all properties are set, `deinit` runs even if `init` throws.
        descriptor = opened
    }

    private static func refusal(of descriptor: Int32) -> String? {
        var facts = stat()
        // Writing to a pipe without a reader would terminate the process (SIGPIPE).
        guard fstat(descriptor, &facts) == 0, facts.st_mode & S_IFMT != S_IFIFO else { return "it is a pipe" }
        let isPrivate = facts.st_mode & 0o077 == 0 && facts.st_uid == geteuid()
        guard isPrivate || facts.st_mode & S_IFMT != S_IFREG else {
            return "other users can read it, but it must be owned by this user, with mode 600"
        }
        return nil
    }

    deinit { close(descriptor) }

    /// Starts appending the secrets of `context`'s connections. The context must not outlive this object.
    func observe(_ context: OpaquePointer) throws(TLSError) {
        try OpenSSLCall.requireSuccess("SSL_CTX_set_ex_data") {
            SSL_CTX_set_ex_data(context, Self.place, Unmanaged.passUnretained(self).toOpaque())
        }
        SSL_CTX_set_keylog_callback(context) { ssl, line in
            guard let ssl, let line, let file = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), KeyLogFile.place) else { return }
            Unmanaged<KeyLogFile>.fromOpaque(file).takeUnretainedValue().append(line)
        }
    }

    /// A separate index, because the session tickets use the context's application data.
    private static let place = COpenSSL_CTX_newIndex()

    /// Lines are lost if the disk is full. The connection is not affected.
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
            .invalidSettings, "the key log \"\(path.printable)\" (keyLogFile) cannot be opened: \(reason)",
            operation: "open")
    }
}
