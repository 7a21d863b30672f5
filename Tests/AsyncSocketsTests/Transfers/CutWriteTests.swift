import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Secure connections that close with unsent bytes. A close_notify would claim that the data is complete
/// (RFC 8446, 6.1), so only the program's own `disconnect()` sends one.
@Suite(.timeLimit(.patient)) struct CutWriteTests {
    enum End: CaseIterable, Sendable {
        case timeout, timeoutOfDelegate, cancellation, cancelledBody, error, fullQueue, release
    }

    private struct Stop: Error {}

    /// More than the kernel buffers of both sides hold.
    private static let bytes = Data(count: 64 << 20)

    @Test(arguments: TLSProtocolVersion.tested, End.allCases)
    func thePeerSeesATruncation(version: TLSProtocolVersion, end: End) async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(recorder, calledOn: .main)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let atServer = Recorder()
        let server = try await cut(by: end) { client in
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            let server = try await recorder.accepted()
            server.changeDelegate(to: atServer)
            try server.beginTLS(settings: TestCertificates.server())
            try await client.startTLS(settings: TestCertificates.client().only(version))
            try await atServer.secured()
            return server
        } whenBegun: {
            $0.readData(toLength: 1, withTimeout: .patient, tag: 1)
            _ = try await atServer.readData()
        }
        server.readData(toLength: Self.bytes.count, withTimeout: .patient, tag: 2)
        #expect(try await atServer.disconnected()?.code == .truncated)
    }

    private func cut(
        by end: End, connect: (AsyncSocket) async throws -> AsyncSocket,
        whenBegun: @escaping @Sendable (AsyncSocket) async throws -> Void
    ) async throws -> AsyncSocket {
        let client = AsyncSocket()
        let server = try await connect(client)
        switch end {
        case .timeout:
            let error = await #expect(throws: AsyncSocketError.self) {
                try await client.closing { try await $0.write(Self.bytes, timeout: .milliseconds(50)) }
            }
            #expect(error?.code == .writeTimeout)
        case .timeoutOfDelegate:
            let atClient = Recorder()
            client.changeDelegate(to: atClient)
            client.write(Self.bytes, withTimeout: 0.05, tag: 1)
            #expect(try await atClient.disconnected()?.code == .writeTimeout)
        case .cancellation:
            let closing = Task {
                client.write(Self.bytes, tag: 1)
                try await client.close(timeout: .seconds(3600))
            }
            try await whenBegun(server)
            closing.cancel()
            await #expect(throws: CancellationError.self) { try await closing.value }
        case .cancelledBody:
            let writing = Task { try await client.closing { try await $0.write(Self.bytes) } }
            try await whenBegun(server)
            writing.cancel()
            await #expect(throws: CancellationError.self) { try await writing.value }
        case .error:
            await #expect(throws: Stop.self) {
                try await client.closing {
                    $0.write(Self.bytes, tag: 1)
                    try await whenBegun(server)
                    throw Stop()
                }
            }
        case .fullQueue:
            client.maximumPendingWriteBytes = Self.bytes.count
            let atClient = Recorder()
            client.changeDelegate(to: atClient)
            client.write(Self.bytes, tag: 1)
            try await whenBegun(server)
            client.write(Self.bytes, tag: 2)
            #expect(try await atClient.disconnected()?.code == .writeQueueFull)
        case .release:
            client.write(Self.bytes, tag: 1)
            try await whenBegun(server)
        }
        return server
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func aShutdownAtItsDeadlineIsATruncation(version: TLSProtocolVersion, isQueued: Bool) async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server())
        let body: @Sendable (AsyncSocket) async throws -> Void = { socket in
            guard isQueued else { return try await socket.write(Self.bytes) }
            socket.writeHighWaterMark = Self.bytes.count + 1
            // The write returns while the bytes are still in memory.
            try await socket.write(Self.bytes)
            _ = try await socket.read()
        }
        try await serving(listener, body) { _ in
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort, tls: TestCertificates.client().only(version))
            _ = try await client.read(exactly: 1)
            await listener.close(timeout: .zero)
            let error = await #expect(throws: AsyncSocketError.self) { try await client.read(exactly: 64 << 20) }
            #expect(error?.code == .truncated)
        }
    }

    /// Even in the middle of a write.
    @Test(arguments: TLSProtocolVersion.tested)
    func aCloseNotifyOfATaskIsNotCutByAFullSendBuffer(version: TLSProtocolVersion) async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server())
        let hasEnded = AsyncStream<Void>.makeStream()
        let body: @Sendable (AsyncSocket) async throws -> Void = { socket in
            socket.write(Self.bytes, tag: 1)
            _ = try await socket.read(exactly: 1)
            socket.disconnect()
            hasEnded.continuation.finish()
        }
        try await serving(listener, body) { _ in
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort, tls: TestCertificates.client().only(version))
            _ = try await client.read(exactly: 1)
            try await client.write("!")
            for await _ in hasEnded.stream {}
            let rest = try await client.readToEnd(maxLength: Self.bytes.count)
            #expect(rest.count < Self.bytes.count - 1)
        }
    }

    /// `disconnectAfterReading()` drops queued writes, as `disconnect()` does.
    @Test(arguments: TLSProtocolVersion.tested)
    func anEndAfterReadsIsThePrograms(version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        link.client.readData(toLength: 1, withTimeout: .patient, tag: 1)
        link.client.write(Self.bytes, tag: 2)
        link.client.disconnectAfterReading()
        link.server.readData(toLength: 1, withTimeout: .patient, tag: 3)
        _ = try await link.atServer.readData()
        link.server.write(Data("!"), tag: 4)
        #expect(try await link.atServer.wrote() == 4)
        _ = try await link.atClient.readData()
        #expect(try await link.atClient.disconnected() == nil)
        link.server.readData(toLength: Self.bytes.count, withTimeout: .patient, tag: 5)
        #expect(try await link.atServer.disconnected()?.code == .closedByPeer)
    }

    /// According to RFC 5246, 7.2.1, pending writes are discarded, and the reply is a close_notify. With TLS
    /// 1.3, the peer may still expect them, and detects that they are missing.
    @Test(arguments: TLSProtocolVersion.tested)
    func aCloseNotifyInMidWriteIsAnswered(version: TLSProtocolVersion) async throws {
        let link = try await Link.make()
        try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        link.server.autoDisconnectOnClosedReadStream = false
        link.client.write(Self.bytes, tag: 1)
        link.server.readData(toLength: 1, withTimeout: .patient, tag: 2)
        _ = try await link.atServer.readData()
        link.client.readData(tag: 3)
        link.server.closeWriteStream()
        #expect(try await link.atClient.disconnected()?.code == .closedByPeer)
        link.server.readData(toLength: Self.bytes.count, withTimeout: .patient, tag: 4)
        let code = try await link.atServer.disconnected()?.code
        #expect(code == (version == .tls12 ? .closedByPeer : .truncated))
    }
}
