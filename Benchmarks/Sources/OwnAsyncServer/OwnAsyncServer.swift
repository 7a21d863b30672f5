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
        let acceptor = Acceptor(mode: arguments.mode, settings: try makeSettings())
        let listener = AsyncSocket(inlineDelegate: acceptor)
        guard let port = UInt16(exactly: arguments.port) else { throw ValidationError("\(arguments.port) is no port") }
        try listener.accept(onInterface: "127.0.0.1", port: port)
        arguments.announce(port: Int(listener.localPort))
        withExtendedLifetime((listener, acceptor)) { while true { pause() } }
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

final class Acceptor: AsyncSocketDelegate, Sendable {
    let mode: ServerArguments.Mode
    let settings: TLSSettings?

    init(mode: ServerArguments.Mode, settings: TLSSettings?) {
        self.mode = mode
        self.settings = settings
    }

    func socket(_ listener: AsyncSocket, didAcceptNewSocket socket: AsyncSocket) {
        let (mode, settings) = (mode, settings)
        socket.removeDelegate()
        Task(executorPreference: socket.executor) {
            if let settings { try await socket.startTLS(settings: settings) }
            switch mode {
            case .echo:
                while let bytes = try await socket.read() { try await socket.write(bytes) }
            case .lines:
                for try await line in socket.lines { try await socket.write(line + "\n") }
            default: break
            }
            await socket.close()
        }
    }
}
