package import FoundationEssentials
internal import Glibc
internal import Synchronization

/// A file being received. The file appears at its path when it is complete.
///
/// Until then, the bytes are stored in a hidden file in the same directory. All methods may block.
package final class ReceivedFile: Sendable {
    private let path: String
    private let partPath: String
    /// Negative if the file is closed.
    private let descriptor: Atomic<CInt>

    /// Creates the hidden file.
    ///
    /// - Throws: `EINVAL` if the path is empty, or if it is a directory, a device, a pipe or a socket. An
    ///   existing regular file or symbolic link will be replaced.
    package init(path: String) throws(SystemError) {
        guard Self.mayBeFile(path) else { throw SystemError("open", errno: EINVAL) }
        let folder = path.lastIndex(of: "/").map { path[...$0] } ?? ""
        self.path = path
        partPath = "\(folder).\(String(UInt64.random(in: .min ... .max), radix: 36)).part"
        let opened = open(partPath, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o666)
        guard opened >= 0 else { throw SystemError("open") }
        descriptor = Atomic(opened)
    }

    deinit { discard() }

    private static func mayBeFile(_ path: String) -> Bool {
        guard !path.isEmpty, !path.hasSuffix("/"), !path.utf8.contains(0) else { return false }
        var status = stat()
        // If the directory is missing, `open` reports the error.
        guard lstat(path, &status) == 0 else { return true }
        return [S_IFREG, S_IFLNK].contains(status.st_mode & S_IFMT)
    }

    package func append(_ bytes: Data) throws(SystemError) {
        let descriptor = descriptor.load(ordering: .relaxed)
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeBytes { all in
                let rest = UnsafeRawBufferPointer(rebasing: all[done...])
                return retryingOnInterrupt { write(descriptor, rest.baseAddress, rest.count) }
            }
            guard count >= 0 else { throw SystemError("write") }
            done += count
        }
    }

    /// Flushes the file to disk and moves it to its path. If the system crashes during this call, the file
    /// at the path is either complete or unchanged. When the call returns, it is complete.
    package func finish() throws(SystemError) {
        guard fsync(descriptor.load(ordering: .relaxed)) == 0 else { throw SystemError("fsync") }
        guard rename(partPath, path) == 0 else { throw SystemError("rename") }
        close(descriptor.exchange(-1, ordering: .relaxed))
        syncFolder()
    }

    /// Flushes the new directory entry to disk. Errors are ignored, because the file is already in place.
    private func syncFolder() {
        let folder = partPath.lastIndex(of: "/").map { String(partPath[...$0]) } ?? "."
        let opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard opened >= 0 else { return }
        fsync(opened)
        close(opened)
    }

    /// Deletes the hidden file, unless `finish()` has moved it.
    package func discard() {
        let opened = descriptor.exchange(-1, ordering: .relaxed)
        guard opened >= 0 else { return }
        unlink(partPath)
        close(opened)
    }
}
