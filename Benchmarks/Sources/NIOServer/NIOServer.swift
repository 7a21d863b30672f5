internal import ArgumentParser
internal import Foundation
internal import NIOCore
internal import NIOPosix
internal import NIOSSL
internal import ServerArguments

/// A server on SwiftNIO and swift-nio-ssl, modeled on their examples (NIOEchoServer,
/// NIOTLSServer, NIOTCPEchoServer).
@main
struct NIOServer: ParsableCommand {
    enum API: String, ExpressibleByArgument {
        case handlers, async, asyncLoop = "async-loop"
    }

    @OptionGroup var arguments: ServerArguments
    @Option(help: "handlers; async: a task for each connection; async-loop: the same, the event loop executes all tasks.")
    var api = API.handlers

    @Option(help: "The number of event loops for connections.")
    var loops = 1

    func validate() throws {
        if loops < 1 { throw ValidationError("--loops must be at least 1") }
        if loops > 1 && (api != .handlers || arguments.mode.isDatagrams) {
            throw ValidationError("--loops requires --api handlers and a mode without datagrams")
        }
        if arguments.mode.isDatagrams && api != .handlers { throw ValidationError("datagrams come to handlers only") }
        if api != .handlers && arguments.mode != .echo && arguments.mode != .lines {
            throw ValidationError("--api \(api.rawValue) supports only the modes echo and lines")
        }
    }

    func run() throws {
        if arguments.mode.isDatagrams { return try DatagramServer(arguments: arguments).run() }
        let context = try makeContext()
        switch api {
        case .handlers: try serve(context)
        case .async: TaskServer(arguments: arguments, context: context).run()
        case .asyncLoop: try TaskServer(arguments: arguments, context: context).runOnLoop()
        }
    }

    private func serve(_ context: NIOSSLContext?) throws {
        let (mode, beginsSecure) = (arguments.mode, arguments.beginsSecure)
        let bootstrap = ServerBootstrap.forConnections(on: MultiThreadedEventLoopGroup(numberOfThreads: loops))
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let context, beginsSecure {
                        try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
                    }
                    try Self.addHandlers(for: mode, upgradesWith: context, to: channel)
                }
            }
        if mode == .source { _ = bootstrap.childChannelOption(.writeBufferWaterMark, value: .init(low: 131_072, high: 262_144)) }
        let channel = try bootstrap.bind(host: "127.0.0.1", port: arguments.port).wait()
        arguments.announce(port: channel.localAddress?.port ?? 0)
        try channel.closeFuture.wait()
    }

    private func makeContext() throws -> NIOSSLContext? {
        guard arguments.tls.count == 2 else { return nil }
        let certificates = try NIOSSLCertificate.fromPEMFile(arguments.tls[0])
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: certificates.map { .certificate($0) },
            privateKey: .privateKey(try NIOSSLPrivateKey(file: arguments.tls[1], format: .pem)))
        configuration.minimumTLSVersion = .tlsv13
        return try NIOSSLContext(configuration: configuration)
    }

    private static func addHandlers(
        for mode: ServerArguments.Mode, upgradesWith context: NIOSSLContext?, to channel: any Channel
    ) throws {
        let pipeline = channel.pipeline.syncOperations
        switch mode {
        case .echo:
            // As in NIOEchoServer, reading stops while the channel is not writable.
            try pipeline.addHandler(BackPressureHandler())
            try pipeline.addHandler(EchoHandler())
        case .lines:
            try pipeline.addHandler(ByteToMessageHandler(LineDecoder()))
            try pipeline.addHandler(EchoHandler())
        case .count:
            try pipeline.addHandler(ByteToMessageHandler(LineDecoder()))
            try pipeline.addHandler(CountHandler())
        case .receive: try pipeline.addHandler(ReceivingHandler())
        case .source: try pipeline.addHandler(SourceHandler())
        case .starttls:
            guard let context else { throw ValidationError("starttls needs --tls") }
            try pipeline.addHandler(UpgradeHandler(context: context))
            try pipeline.addHandler(EchoHandler())
        case .udpEcho, .udpReceive, .udpSource: throw ValidationError("datagrams come to a channel of their own")
        }
    }
}

extension ServerBootstrap {
    /// A bootstrap with the options shared by all servers on SwiftNIO.
    static func forConnections(on group: MultiThreadedEventLoopGroup) -> ServerBootstrap {
        ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 1024)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.maxMessagesPerRead, value: 16)
            .childChannelOption(.recvAllocator, value: AdaptiveRecvByteBufferAllocator())
    }
}
