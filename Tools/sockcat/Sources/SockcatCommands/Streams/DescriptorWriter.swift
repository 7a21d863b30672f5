internal import FoundationEssentials
internal import Glibc

/// Writes to a descriptor that may block, such as standard output, without blocking a task or an event loop.
///
/// Writes run on a thread of the writer. Cancelling the task interrupts the system call, so the thread does
/// not remain blocked. After that, the writer cannot be used again.
final class DescriptorWriter: Sendable {
    /// A pipe that is ready accepts this many bytes without blocking (PIPE_BUF in limits.h).
    private static let pieceLimit = 4096

    private let descriptor: Int32
    private let name: String
    private let thread: SerialThread
    /// `nil` if the process has no free descriptors. A blocked write then continues after cancellation.
    private let cancellation: WakePipe?
    private let owner: DescriptorOwner?
    private let isRegularFile: Bool

    /// - Parameter isOwner: Whether the writer closes the descriptor.
    init(_ descriptor: Int32, name: String, isOwner: Bool = false) throws {
        (self.descriptor, self.name) = (descriptor, name)
        owner = isOwner ? DescriptorOwner(descriptor) : nil
        thread = try SerialThread()
        cancellation = try? WakePipe()
        var status = stat()
        isRegularFile = fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG
    }

    static func standardOutput() throws -> DescriptorWriter {
        try DescriptorWriter(STDOUT_FILENO, name: "standard output")
    }

    /// Writes a text. Returns when the kernel has accepted it.
    func write(_ text: PrintableText) async throws { try await write(Data(text.text.utf8)) }

    /// Writes the help of a command, which contains no text of a peer.
    func write(help text: String) async throws { try await write(Data("\(text)\n".utf8)) }

    /// Writes all bytes of a peer's or a command's data. Returns when the kernel has accepted them.
    ///
    /// - Throws: `Failure.outputClosed` if the reader of a pipe has exited.
    func write(_ bytes: Data) async throws {
        try await withTaskCancellationHandler {
            try await thread.result { try self.blockingWrite(bytes) }
        } onCancel: {
            cancellation?.fire()
        }
    }

    /// Closes the descriptor after all writes, so that the reader of a pipe sees the end.
    func finish() {
        thread.run { [owner] in owner?.close() }
    }

    private func blockingWrite(_ bytes: Data) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            try waitUntilReady()
            let piece = isRegularFile ? rest : rest.prefix(Self.pieceLimit)
            let count = piece.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count >= 0 {
                rest = rest.dropFirst(count)
            } else if errno != EINTR, errno != EAGAIN {
                throw failure(errno)
            }
        }
    }

    private func waitUntilReady() throws {
        var entries = [
            pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0),
            pollfd(fd: cancellation?.readEnd ?? -1, events: Int16(POLLIN), revents: 0),
        ]
        while poll(&entries, 2, -1) < 0, errno == EINTR {}
        if entries[1].revents != 0 { throw CancellationError() }
    }

    private func failure(_ number: Int32) -> Failure {
        let isFull = number == ENOSPC || number == EDQUOT
        return number == EPIPE
            ? .outputClosed
            : Failure(
                "cannot write \(name): \(ErrorText.of(number))", advice: isFull ? "free some space and try again" : nil,
                status: .fileFailed)
    }

    var isTerminal: Bool { isatty(descriptor) == 1 }
}
