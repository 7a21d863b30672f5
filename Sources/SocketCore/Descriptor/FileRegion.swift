internal import CLinux
internal import Glibc
internal import SocketBuffers
internal import Synchronization

/// A part of an open file, to be sent. The file is closed when the last reference is released.
package final class FileRegion: Sendable {
    package let offset: Int
    package let length: Int
    let descriptor: CInt
    private let handedOn = Atomic(0)

    /// Opens a regular file.
    ///
    /// - Parameter length: `nil` means up to the current end of the file.
    package init(path: String, offset: Int, length: Int?) throws(SystemError) {
        descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else { throw SystemError("open") }
        do throws(SystemError) {
            let size = try Self.size(of: descriptor)
            guard (0...size).contains(offset), length.map({ (0...(size - offset)).contains($0) }) != false else {
                throw SystemError("open", errno: ERANGE)
            }
            self.offset = offset
            self.length = length ?? size - offset
        } catch {
            close(descriptor)
            throw error
        }
    }

    deinit { close(descriptor) }

    /// The number of bytes accepted by the kernel or the TLS engine.
    package var handedOnCount: Int { handedOn.load(ordering: .relaxed) }

    package func noteHandedOn(_ count: Int) {
        handedOn.add(count, ordering: .relaxed)
    }

    private static func size(of descriptor: CInt) throws(SystemError) -> Int {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw SystemError("fstat") }
        guard status.st_mode & S_IFMT == S_IFREG else { throw SystemError("open", errno: EINVAL) }
        return Int(status.st_size)
    }

    /// Reads into `room`, starting at `position` bytes from the start of the region.
    ///
    /// - Returns: The number of bytes read, which is zero only if `room` is empty.
    package func read(at position: Int, into room: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        let count = retryingOnInterrupt { pread(descriptor, room.baseAddress, room.count, offset + position) }
        guard count >= 0 else { throw SystemError("pread") }
        // The file was truncated after the region was created.
        guard count > 0 || room.isEmpty else { throw SystemError.shorterFile("pread") }
        return count
    }
}

extension SocketDescriptor {
    /// Sends at most `count` bytes of a file, starting at `position` in the region, without copying them to
    /// user space (sendfile(2)).
    package func send(_ file: FileRegion, at position: Int, count: Int) -> SendAnswer {
        var start = off_t(file.offset + position)
        let sent = retryingOnInterrupt { CLinux_sendfile_without_signal(rawValue, file.descriptor, &start, count) }
        if sent > 0 { return .bytes(sent) }
        if sent == 0 { return count == 0 ? .bytes(0) : .failed(.sendfile, errno: ENODATA) }
        // Some file systems do not support sendfile(2), and a system call filter may reject it.
        let isRefused = [EINVAL, ENOSYS, EOPNOTSUPP, EPERM, EACCES].contains(errno)
        return isRefused ? sendCopy(of: file, at: position, count: count) : SendAnswer(failureOf: .sendfile)
    }

    /// Sends the bytes through a buffer in user space, at most one block per call.
    private func sendCopy(of file: FileRegion, at position: Int, count: Int) -> SendAnswer {
        let block = PreBuffer()
        let room = UnsafeMutableRawBufferPointer(rebasing: block.writableBytes(minimum: 1).prefix(count))
        do throws(SystemError) {
            return send(UnsafeRawBufferPointer(rebasing: room[..<(try file.read(at: position, into: room))]))
        } catch {
            return .failed(error.errno == ENODATA ? .sendfile : .pread, errno: error.errno)
        }
    }
}
