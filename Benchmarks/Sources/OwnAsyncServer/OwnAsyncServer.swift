internal import ArgumentParser
internal import AsyncSockets
internal import Dispatch
internal import Foundation
internal import ServerArguments

/// A server of tasks on this package, as a user would write it. It has one loop if it may use one processor
/// (taskset).
@main
struct OwnAsyncServer: ParsableCommand {
    @OptionGroup var arguments: ServerArguments
    @Option(help: "How many session tickets a full handshake sends.")
    var tickets = 0

    func run() throws {
        guard let port = UInt16(exactly: arguments.port) else { throw ValidationError("\(arguments.port) is no port") }
        let listener = try SocketListener(port: port, interface: "127.0.0.1", tls: try makeSettings())
        arguments.announce(port: Int(listener.localPort))
        let mode = arguments.mode
        Task { try await listener.run { try await Self.serve($0, mode) } }
        // Not an async main, which ends the main thread: valgrind cannot handle that.
        while true { pause() }
    }

    private static let newline = Data([10])

    private static func serve(_ socket: AsyncSocket, _ mode: ServerArguments.Mode) async throws {
        switch mode {
        case .echo: while let bytes = try await socket.read() { try await socket.write(bytes) }
        case .lines: while true { try await socket.write(socket.read(until: newline)) }
        case .count, .receive, .source, .starttls: throw ValidationError("this server has only echo and lines")
        }
    }

    private func makeSettings() throws -> TLSSettings? {
        guard arguments.tls.count == 2 else { return nil }
        let identity = try TLSIdentity(certificateFile: arguments.tls[0], privateKeyFile: arguments.tls[1])
        var settings = TLSSettings.server(identity: identity)
        settings.minimumVersion = .tls13
        settings.sessionTicketCount = tickets
        return settings
    }
}
