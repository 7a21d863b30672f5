internal import ArgumentParser
internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// The options for copying standard input and output.
struct ExchangeOptions: ParsableArguments {
    @Flag(help: "Convert line endings in the input from LF to CRLF.")
    var crlf = false

    @Flag(name: .customLong("no-half-close"), help: "At the end of the input, keep the sending side of the connection open.")
    var keepsSendingSideOpen = false

    @Option(help: ArgumentHelp("Fail if no data is sent or received for this long.", valueName: "duration"))
    var idleTimeout: DurationArgument?

    @Flag(
        inversion: .prefixedNo, help: "Show the progress of the transfer. By default, only long transfers on a terminal show it.")
    var progress: Bool?
}

/// Copies standard input to a connection and the connection to standard output, until both are closed.
struct StreamExchange: Sendable {
    private enum Event: Sendable {
        case inputEnded
        /// The connection no longer accepts data. It may still have data to read.
        case uploadFailed(any Error)
        case peerEnded
    }

    private let socket: AsyncSocket
    private let options: ExchangeOptions
    private let input: DescriptorReader
    private let output: DescriptorWriter
    private let progress: ProgressLine

    init(_ socket: AsyncSocket, _ options: ExchangeOptions, _ reporter: Reporter) throws {
        (self.socket, self.options) = (socket, options)
        (input, output) = (try .standardInput(), try .standardOutput())
        progress = ProgressLine(
            ProgressLine.display(options.progress, input, output, reporter), total: input.remainingCount)
    }

    func run() async throws {
        defer { progress.finish() }
        try await withThrowingTaskGroup(of: Event.self) { group in
            group.addTask { try await upload() }
            group.addTask { try await download() }
            var failure: (any Error)?
            while let event = try await group.next() {
                switch event {
                case .inputEnded: break
                case .uploadFailed(let error): failure = error
                case .peerEnded:
                    // Someone who types has no reason to continue.
                    guard input.isTerminal else { break }
                    group.cancelAll()
                    if let failure { throw failure }
                    return
                }
            }
            if let failure { throw failure }
        }
    }

    private func upload() async throws -> Event {
        var endings = LineEndings()
        while let bytes = try await input.read() {
            do {
                try await socket.write(options.crlf ? endings.converted(bytes) : bytes)
            } catch {
                return .uploadFailed(error)
            }
            progress.noteSent(bytes.count)
        }
        if !options.keepsSendingSideOpen { socket.closeWriteStream() }
        return .inputEnded
    }

    private func download() async throws -> Event {
        for try await bytes in socket.chunks(idleTimeout: options.idleTimeout?.duration) {
            try await output.write(bytes)
            progress.noteReceived(bytes.count)
        }
        return .peerEnded
    }
}

extension ProgressLine {
    /// Returns how to show progress. A line on a terminal must not mix with data on the same terminal.
    static func display(
        _ choice: Bool?, _ input: DescriptorReader, _ output: DescriptorWriter, _ reporter: Reporter
    ) -> Display? {
        let isTerminal = isatty(STDERR_FILENO) == 1
        if let choice { return choice ? (isTerminal ? .terminal : .lines) : nil }
        return isTerminal && reporter.level >= .normal && !input.isTerminal && !output.isTerminal ? .terminal : nil
    }
}
