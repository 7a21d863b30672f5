import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestSupport

@testable import AsyncSockets

/// A DTLS client that can stop after its ClientHello and finish the handshake later.
final class HubClient {
    let socket: AsyncUDPSocket
    let source: Int
    /// The ClientHellos with a cookie that this client has sent from its port, oldest first.
    private(set) var hellos: [[UInt8]] = []
    /// Whether the engine has sent the last ClientHello, and not the network.
    private(set) var canFinish = false
    private var engine: DTLSEngine
    private var earlier: (engine: DTLSEngine, canFinish: Bool)?

    init(_ source: Int, of listener: DatagramListener) async throws {
        self.source = source
        socket = try AsyncUDPSocket.bound("127.0.0.\(source + 1)")
        engine = try Self.makeEngine()
        try await socket.connect(to: "127.0.0.1", port: listener.localPort)
    }

    private static func makeEngine() throws -> DTLSEngine {
        let settings = try TestCertificates.client().values
        let engine = try DTLSEngine(
            context: TLSContext.context(for: settings, over: .datagrams), settings: settings, size: 1400)
        engine.setFirstTimeout(seconds: 60)
        return engine
    }

    /// Sends a ClientHello with a cookie. A second call starts another connection from the same port.
    func sayHello() async throws {
        earlier = (engine, canFinish)
        (engine, canFinish) = (try Self.makeEngine(), true)
        try await send(advance())
        try await receive(messageOfType: 3)
        let hello = advance()
        hellos += hello
        try await send(hello)
    }

    /// Continues the earlier connection, because the server has refused the last ClientHello.
    func undoHello() {
        guard let earlier else { return }
        (engine, canFinish) = earlier
        hellos.removeLast()
    }

    /// The network repeats the last ClientHello. The server no longer knows the earlier ones.
    func repeatLastHello() async throws {
        (hellos, canFinish) = (hellos.suffix(1), false)
        try await sendLastHello()
    }

    func sendFirstHello() async throws { try await send(hellos.prefix(1)) }

    func sendLastHello() async throws { try await send(hellos.suffix(1)) }

    /// Waits for the server's first flight, which follows a ClientHello that the server accepts.
    func receiveServerHello() async throws { try await receive(messageOfType: 2) }

    /// Passes datagrams to the engine until one starts with a handshake message of this type. Datagrams of an
    /// earlier connection may arrive first; they start with other messages, or belong to no handshake.
    private func receive(messageOfType type: UInt8) async throws {
        while true {
            let datagram = Array(try await socket.receive().data)
            guard datagram.count > 13, datagram[0] == 22, datagram[13] == type else { continue }
            return datagram.withUnsafeBytes { engine.receive($0) }
        }
    }

    /// Finishes the handshake, and checks that the server serves this client.
    func finish() async throws {
        while true {
            let answer = engine.handshake()
            try await send(engine.takeOutput())
            if case .failed(let error) = answer { throw error }
            if case .complete = answer { break }
            let datagram = try await socket.receive().data
            datagram.withUnsafeBytes { engine.receive($0) }
        }
        try await expectEcho()
    }

    func expectEcho() async throws {
        let text = "hello \(hellos.count)"
        _ = Array(text.utf8).withUnsafeBytes { engine.write($0) }
        try await send(engine.takeOutput())
        let buffer = PreBuffer()
        while true {
            switch engine.read(into: buffer) {
            case .bytes:
                guard String(decoding: buffer.readableBytes, as: UTF8.self) == text else {
                    throw Unexpected(description: "another reply")
                }
                return
            case .incomplete:
                let datagram = try await socket.receive().data
                datagram.withUnsafeBytes { engine.receive($0) }
            case .closed, .truncated, .failed: throw Unexpected(description: "the server has closed an established peer")
            }
        }
    }

    /// Sends a close_notify.
    func close() async throws {
        engine.shutdown()
        try await send(engine.takeOutput())
    }

    private func advance() -> [[UInt8]] {
        _ = engine.handshake()
        return engine.takeOutput()
    }

    private func send(_ datagrams: some Sequence<[UInt8]>) async throws {
        for datagram in datagrams { try await socket.send(Data(datagram)) }
    }
}
