internal import ArgumentParser
internal import AsyncSockets
internal import Dispatch
internal import Foundation
internal import ServerArguments

/// A server on this package, as a user would write it. It has one event loop if it is limited to one
/// processor (taskset).
@main
struct OwnServer: ParsableCommand {
    enum Delivery: String, ExpressibleByArgument {
        case inline, queue
    }

    @OptionGroup var arguments: ServerArguments
    @Option(help: "inline: the delegate is called on the event loop; queue: on a queue of its own.")
    var delivery = Delivery.inline
    @Flag(help: "The delegate borrows the bytes, without a Data per message.")
    var borrowed = false
    @OptionGroup var broadcast: BroadcastSignal
    @Option(help: "The number of session tickets per full handshake.")
    var tickets = 0

    func run() throws {
        if arguments.mode.isDatagrams { return try runDatagrams() }
        let service = try makeService()
        let listener =
            switch delivery {
            case .inline: AsyncSocket(inlineDelegate: service)
            case .queue: AsyncSocket(delegate: service, delegateQueue: DispatchQueue(label: "delegate"))
            }
        guard let port = UInt16(exactly: arguments.port) else { throw ValidationError("\(arguments.port) is not a port") }
        listener.maximumConnections = .max
        try listener.accept(onInterface: "127.0.0.1", port: port)
        arguments.announce(port: Int(listener.localPort))
        let source = broadcast.start { service.broadcast($0) }
        // Not dispatchMain(), because it exits the main thread, which valgrind does not support.
        withExtendedLifetime((listener, service, source)) { while true { pause() } }
    }

    private func runDatagrams() throws {
        let service = DatagramService(arguments.mode)
        let socket =
            switch delivery {
            case .inline: AsyncUDPSocket(inlineDelegate: service)
            case .queue: AsyncUDPSocket(delegate: service, delegateQueue: DispatchQueue(label: "delegate"))
            }
        guard let port = UInt16(exactly: arguments.port) else { throw ValidationError("\(arguments.port) is not a port") }
        try socket.bind(toPort: port, interface: "127.0.0.1")
        try socket.beginReceiving()
        arguments.announce(port: Int(socket.localPort))
        withExtendedLifetime((socket, service)) { while true { pause() } }
    }

    private func makeService() throws -> Service {
        let settings = try makeSettings()
        switch arguments.mode {
        case .echo where borrowed: return BorrowedEchoService(securesWith: settings)
        case .echo: return EchoService(securesWith: settings)
        case .lines: return LineService(securesWith: settings)
        case .count: return CountService(securesWith: settings)
        case .receive: return ReceivingService(securesWith: settings, borrows: borrowed)
        case .source: return SourceService(securesWith: settings)
        case .starttls:
            guard let settings else { throw ValidationError("starttls needs --tls") }
            return UpgradeService(upgradesWith: settings)
        case .udpEcho, .udpReceive, .udpSource: throw ValidationError("datagrams come to a socket of their own")
        }
    }

    private func makeSettings() throws -> TLSServerSettings? {
        guard arguments.tls.count == 2 else { return nil }
        let identity = try TLSIdentity(certificateFile: arguments.tls[0], privateKeyFile: arguments.tls[1])
        var settings = TLSSettings.server(identity: identity)
        settings.minimumVersion = .tls13
        settings.sessionTickets = tickets > 0 ? .issued(tickets) : .none
        return settings
    }
}
