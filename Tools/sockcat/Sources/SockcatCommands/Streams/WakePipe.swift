internal import Glibc
internal import Synchronization

/// A pipe that interrupts poll(2).
final class WakePipe: Sendable {
    let readEnd: Int32
    private let writeEnd: Int32

    init() throws {
        (readEnd, writeEnd) = try DescriptorPair.pipe()
        // The write must never block, however often the pipe fires.
        _ = fcntl(writeEnd, F_SETFL, O_NONBLOCK)
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    /// Makes the read end readable from now on.
    func fire() { _ = write(writeEnd, [1], 1) }
}

enum DescriptorPair {
    /// Creates a pipe. Programs that this process starts do not inherit it.
    static func pipe() throws -> (readEnd: Int32, writeEnd: Int32) {
        var ends: [Int32] = [-1, -1]
        guard Glibc.pipe(&ends) == 0 else { throw Failure("cannot create a pipe: \(ErrorText.of(errno))") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return (ends[0], ends[1])
    }
}

/// Closes a descriptor once.
final class DescriptorOwner: Sendable {
    private let descriptor: Mutex<Int32?>

    init(_ descriptor: Int32) {
        self.descriptor = Mutex(descriptor)
    }

    deinit { close() }

    func close() {
        let last = descriptor.withLock { descriptor in
            defer { descriptor = nil }
            return descriptor
        }
        if let last { _ = Glibc.close(last) }
    }
}
