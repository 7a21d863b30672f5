internal import ArgumentParser
internal import AsyncSockets
internal import Dispatch
internal import Foundation
internal import ServerArguments
internal import Synchronization

/// A server with tasks on this package, as a user would write it. It has one event loop if it is limited to
/// one processor (taskset).
@main
struct OwnAsyncServer: ParsableCommand {
    @OptionGroup var arguments: ServerArguments
    @Option(help: "The number of session tickets per full handshake.")
    var tickets = 0
    @OptionGroup var broadcast: BroadcastSignal
    @Flag(help: "Echo borrowed bytes, without a Data per message.")
    var borrowed = false

    func run() throws {
        guard let port = UInt16(exactly: arguments.port) else { throw ValidationError("\(arguments.port) is not a port") }
        if arguments.mode.isDatagrams { return try runDatagrams(port) }
        let listener = try SocketListener(
            port: port, interface: "127.0.0.1", tls: try makeSettings(), maximumConnections: .max)
        arguments.announce(port: Int(listener.localPort))
        let (mode, borrowed) = (arguments.mode, borrowed)
        let members = broadcast.broadcasts ? Members() : nil
        let source = broadcast.start { bytes in Task { await members?.send(bytes) } }
        Task {
            try await listener.run { socket in
                members?.add(socket)
                defer { members?.remove(socket) }
                if borrowed { try await Self.echoBorrowed(socket, mode) } else { try await Self.serve(socket, mode) }
            }
        }
        // Not an async main function, because it would exit the main thread, which valgrind does not support.
        withExtendedLifetime(source) { while true { pause() } }
    }

    private func runDatagrams(_ port: UInt16) throws {
        guard arguments.mode == .udpEcho else { throw ValidationError("with datagrams, this server supports only udp-echo") }
        if let settings = try makeSettings() { return try runDTLS(port, settings) }
        let arguments = arguments
        Task {
            try await AsyncUDPSocket.withSocket(boundTo: port, interface: "127.0.0.1") { socket in
                arguments.announce(port: Int(socket.localPort))
                for try await datagram in socket.datagrams {
                    try await socket.send(datagram.data, to: datagram.sender)
                }
            }
        }
        while true { pause() }
    }

    private func runDTLS(_ port: UInt16, _ settings: TLSServerSettings) throws {
        var settings = settings
        settings.minimumVersion = .dtls12
        let listener = try DatagramListener(port: port, interface: "127.0.0.1", dtls: settings)
        arguments.announce(port: Int(listener.localPort))
        Task {
            try await listener.run { socket in
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
        while true { pause() }
    }

    private static func serve(_ socket: AsyncSocket, _ mode: ServerArguments.Mode) async throws {
        switch mode {
        case .echo: while let bytes = try await socket.read() { try await socket.write(bytes) }
        case .lines: for try await line in socket.lines { try await socket.writeLine(line, endingWith: "\n") }
        case .source: try await send(socket)
        default: throw ValidationError("this server supports only echo, lines and source")
        }
    }

    /// For each request of sixteen bytes, a total length and the size of a write, sends that many bytes.
    private static func send(_ socket: AsyncSocket) async throws {
        var pattern: [UInt8] = []
        for try await (total, size) in socket.frames(Requests()) {
            if pattern.count < size { pattern = BulkPattern.bytes(size) }
            for position in stride(from: 0, to: total, by: size) {
                let start = position % BulkPattern.period
                try await socket.write(pattern.span.bytes.extracting(start..<start + min(size, total - position)))
            }
        }
    }

    /// Borrows the bytes only to copy them into a reused buffer.
    private static func echoBorrowed(_ socket: AsyncSocket, _ mode: ServerArguments.Mode) async throws {
        guard mode == .echo else { throw ValidationError("only echoes are borrowed") }
        var held: [UInt8] = []
        while true {
            held.removeAll(keepingCapacity: true)
            let some: Void? = try await socket.withNextBytes { bytes in bytes.withUnsafeBytes { held.append(contentsOf: $0) } }
            guard some != nil else { return }
            try await socket.write(held.span.bytes)
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

/// The connections that receive broadcasts.
private final class Members: Sendable {
    private let sockets = Mutex<[ObjectIdentifier: AsyncSocket]>([:])

    func add(_ socket: AsyncSocket) { sockets.withLock { $0[ObjectIdentifier(socket)] = socket } }

    func remove(_ socket: AsyncSocket) { _ = sockets.withLock { $0.removeValue(forKey: ObjectIdentifier(socket)) } }

    /// A connection that fails is removed by its task.
    func send(_ bytes: Data) async {
        for socket in sockets.withLock({ Array($0.values) }) { try? await socket.write(bytes) }
    }
}

/// The requests of the mode `source`.
private struct Requests: Framing {
    var maximumFrameLength: Int { 16 }

    func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<(total: Int, size: Int)> {
        guard bytes.byteCount >= 16 else { return .incomplete(minimumLength: 16) }
        let total = bytes.unsafeLoadUnaligned(as: UInt64.self)
        let size = bytes.unsafeLoadUnaligned(fromByteOffset: 8, as: UInt64.self)
        return .frame((Int(total), Int(size)), length: 16)
    }

    func encode(_ frame: (total: Int, size: Int), into bytes: inout Data) {}
}
