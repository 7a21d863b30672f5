internal import ArgumentParser
internal import Foundation
internal import NIOCore
internal import NIOPosix
internal import NIOSSL
internal import ServerArguments

/// A server on SwiftNIO's async API in the manner of its example NIOTCPEchoServer: a child task for each
/// connection, on the singleton event loops, of which there is one.
struct TaskServer: Sendable {
    let arguments: ServerArguments
    let context: NIOSSLContext?

    private typealias Connection = NIOAsyncChannel<ByteBuffer, ByteBuffer>

    /// Serves with Swift's own executor for the tasks.
    func run() -> Never {
        // Before the first use of the singleton: its group is made once.
        NIOSingletons.groupLoopCountSuggestion = 1
        startTask()
    }

    /// Serves with the event loop as the executor of all tasks. Only the main thread may call this.
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
        // Not an async main function, which ends the main thread: valgrind cannot handle that.
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

    /// Writes what it reads: bytes, or lines where a decoder divides them.
    private static func echo(on connection: Connection) async {
        do {
            try await connection.executeThenClose { inbound, outbound in
                for try await bytes in inbound {
                    try await outbound.write(bytes)
                }
            }
        } catch {
            // A client may reset its connection, or end it without TLS's close_notify. The others go on.
        }
    }
}
