internal import FoundationEssentials
internal import Glibc

/// Reads a descriptor that may block, such as standard input, without blocking a task or an event loop.
///
/// Reads run on a thread of the reader. Cancelling the task interrupts the system call, so the thread does
/// not remain blocked. After that, the reader cannot be used again.
final class DescriptorReader: Sendable {
    let name: String
    private let descriptor: Int32
    private let thread: SerialThread
    private let cancellation: WakePipe
    private let owner: DescriptorOwner?

    /// - Parameter isOwner: Whether the reader closes the descriptor when it is released.
    init(_ descriptor: Int32, name: String, isOwner: Bool = false) throws {
        (self.descriptor, self.name) = (descriptor, name)
        owner = isOwner ? DescriptorOwner(descriptor) : nil
        thread = try SerialThread()
        cancellation = try WakePipe()
    }

    static func standardInput() throws -> DescriptorReader {
        try DescriptorReader(STDIN_FILENO, name: "standard input")
    }

    /// Returns the next bytes, or `nil` at the end.
    func read(atMost count: Int = 65536) async throws -> Data? {
        try await withTaskCancellationHandler {
            try await thread.result { try self.blockingRead(count) }
        } onCancel: {
            cancellation.fire()
        }
    }

    private func blockingRead(_ count: Int) throws -> Data? {
        var bytes = Data(count: count)
        while true {
            try waitForInput()
            let length = bytes.withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress, count) }
            if length == 0 { return nil }
            if length > 0 { return length == count ? bytes : Data(bytes.prefix(length)) }
            if errno != EINTR, errno != EAGAIN {
                throw Failure("cannot read \(name): \(ErrorText.of(errno))", status: .fileFailed)
            }
        }
    }

    private func waitForInput() throws {
        var entries = [
            pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
            pollfd(fd: cancellation.readEnd, events: Int16(POLLIN), revents: 0),
        ]
        while poll(&entries, 2, -1) < 0, errno == EINTR {}
        if entries[1].revents != 0 { throw CancellationError() }
    }

    /// The number of bytes up to the end of a regular file, or `nil` for anything else.
    var remainingCount: Int? {
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        let offset = lseek(descriptor, 0, SEEK_CUR)
        return offset < 0 ? nil : max(0, Int(status.st_size) - Int(offset))
    }

    var isTerminal: Bool { isatty(descriptor) == 1 }
}
