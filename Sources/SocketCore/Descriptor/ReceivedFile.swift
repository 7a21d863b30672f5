package import FoundationEssentials
internal import Glibc
internal import Synchronization

/// A file that is being received: it appears under its path once it is whole.
///
/// Until then the bytes are in a hidden file in the same folder. All calls may block.
package final class ReceivedFile: Sendable {
    private let path: String
    private let partPath: String
    /// Negative: the file is closed.
    private let descriptor: Atomic<CInt>

    /// Opens the hidden file.
    ///
    /// - Throws: `EINVAL` when the path cannot be a regular file's: it is empty, or leads to a folder, a
    ///   device, a pipe or a socket. A file or a symbolic link that is there will be replaced.
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
        // A missing folder is the error of open.
        guard lstat(path, &status) == 0 else { return true }
        return [S_IFREG, S_IFLNK].contains(status.st_mode & S_IFMT)
    }

    /// Writes all of `bytes` behind those before.
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

    /// Gives the file its name, once the disk has its bytes: a crash leaves all of it or nothing there, and
    /// after the call all of it.
    package func finish() throws(SystemError) {
        guard fsync(descriptor.load(ordering: .relaxed)) == 0 else { throw SystemError("fsync") }
        guard rename(partPath, path) == 0 else { throw SystemError("rename") }
        close(descriptor.exchange(-1, ordering: .relaxed))
        syncFolder()
    }

    /// Has the disk note the new name. It fails in silence, because the file is there by now.
    private func syncFolder() {
        let folder = partPath.lastIndex(of: "/").map { String(partPath[...$0]) } ?? "."
        let opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard opened >= 0 else { return }
        fsync(opened)
        close(opened)
    }

    /// Deletes what there is, unless the file has its name.
    package func discard() {
        let opened = descriptor.exchange(-1, ordering: .relaxed)
        guard opened >= 0 else { return }
        unlink(partPath)
        close(opened)
    }
}
