internal import ArgumentParser
internal import Foundation
internal import NIOCore
internal import NIOPosix
internal import NIOSSL
internal import ServerArguments

/// A server on SwiftNIO's async API, modeled on its example NIOTCPEchoServer: a child task per connection, on
/// the singleton event loop group with one loop.
struct TaskServer: Sendable {
    let arguments: ServerArguments
    let context: NIOSSLContext?

    private typealias Connection = NIOAsyncChannel<ByteBuffer, ByteBuffer>

    /// Serves with Swift's default executor for the tasks.
    func run() -> Never {
        // Must be set before the first use of the singleton, which creates its group.
        NIOSingletons.groupLoopCountSuggestion = 1
        startTask()
    }

    /// Serves with the event loop as the executor of all tasks. Call this only on the main thread.
    func runOnLoop() throws -> Never {
        NIOSingletons.groupLoopCountSuggestion = 1
        guard NIOSingletons.unsafeTryInstallSingletonPosixEventLoopGroupAsConcurrencyGlobalExecutor() else {
            throw ValidationError("the event loop cannot become the global executor")
        }
        startTask()
    }

    private func startTask() -> Never {
        Task {
            do {
                try await serve()
            } catch {
                FileHandle.standardError.write(Data("\(error)\n".utf8))
                exit(1)
            }
        }
        // Not an async main function, because it would exit the main thread, which valgrind does not support.
        while true { pause() }
    }

    private func serve() async throws {
        let (mode, context) = (arguments.mode, arguments.beginsSecure ? context : nil)
        let listener = try await ServerBootstrap.forConnections(on: .singleton)
            .bind(host: "127.0.0.1", port: arguments.port) { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let context { try pipeline.addHandler(NIOSSLServerHandler(context: context)) }
                    if mode == .lines { try pipeline.addHandler(ByteToMessageHandler(LineDecoder())) }
                    return try Connection(wrappingChannelSynchronously: channel)
                }
            }
        arguments.announce(port: listener.channel.localAddress?.port ?? 0)
        try await withThrowingDiscardingTaskGroup { group in
            try await listener.executeThenClose { connections in
                for try await connection in connections {
                    group.addTask { await Self.echo(on: connection) }
                }
            }
        }
    }

    /// Echoes everything, in bytes or in lines from a decoder.
    private static func echo(on connection: Connection) async {
        do {
            try await connection.executeThenClose { inbound, outbound in
                for try await bytes in inbound {
                    try await outbound.write(bytes)
                }
            }
        } catch {
            // A client may reset its connection or close it without close_notify. This does not affect other
            // connections.
        }
    }
}
