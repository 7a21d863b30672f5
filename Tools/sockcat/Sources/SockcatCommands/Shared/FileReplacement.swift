internal import FoundationEssentials
internal import Glibc

/// Writes files completely or not at all.
enum FileReplacement {
    /// Writes to a temporary file, which then replaces `path`, so that no program reads half a file and a
    /// secret is never readable by others.
    ///
    /// - Parameter mode: The permissions of the new file.
    static func write(_ contents: Data, to path: String, mode: mode_t) throws {
        let temporary = "\(path).\(getpid()).tmp"
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode)
        guard descriptor >= 0 else { throw Failure.file(temporary, "create", errno: errno) }
        do {
            try write(contents, to: descriptor, temporary)
            guard rename(temporary, path) == 0 else { throw Failure.file(path, "replace", errno: errno) }
        } catch {
            unlink(temporary)
            throw error
        }
    }

    private static func write(_ contents: Data, to descriptor: Int32, _ path: String) throws {
        var rest = contents[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                let number = errno
                close(descriptor)
                throw Failure.file(path, "write", errno: number)
            }
            rest = rest.dropFirst(count)
        }
        // Some file systems report a full disk only here.
        guard close(descriptor) == 0 else { throw Failure.file(path, "write", errno: errno) }
    }
}
