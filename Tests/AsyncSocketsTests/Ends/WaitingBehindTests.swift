import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// An operation behind a waiting one, with a silent peer. It ends and reports the reason.
@Suite(.timeLimit(.patient)) struct WaitingBehindTests {
    /// Otherwise the read would wait for bytes, and TLS for the read.
    @Test func startTLSBehindATasksReadEndsAtOnce() async throws {
        let pair = try await SocketPair()
        let read = Task.immediate { try await pair.client.read() }
        try await pair.client.readWaits()
        let error = await #expect(throws: AsyncSocketError.self) {
            try await pair.client.startTLS(settings: TestCertificates.client())
        }
        #expect(error?.code == .badConfiguration && error?.message.contains("has a pending read") == true)
        #expect(await read.outcome == .failed(.badConfiguration))
        // Nothing was sent in plaintext, and nothing can be.
        #expect(!pair.client.isConnected)
        #expect(try await pair.server.read() == nil)
    }

    /// `startTLS` waits for a delegate's reads. The write also waits, although the kernel would accept it.
    @Test func startTLSBehindADelegatesReadWaitsForIt() async throws {
        let link = try await Link.make()
        link.client.readData(to: .lineEnd, withTimeout: .patient, tag: 1)
        try await link.client.readWaits()
        let upgrade = Task.immediate { try await link.client.startTLS(settings: TestCertificates.client()) }
        let write = Task.immediate { try await link.client.write("secret\r\n") }
        link.server.write(Data("ready\r\n"), tag: 1)
        try link.server.beginTLS(settings: TestCertificates.server())
        #expect(try await link.atClient.readText() == "ready\r\n")
        #expect(try await upgrade.value.cipherSuite.isEmpty == false)
        try await write.value
        #expect(try await link.atServer.wrote() == 1)
        try await link.atServer.secured()
        link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 2)
        #expect(try await link.atServer.readText() == "secret\r\n")
    }

    /// Writes that are not sent because the peer does not read.
    @Test func startTLSBehindAWriteThatDoesNotLeaveEnds() async throws {
        let (socket, peer) = try await connectedSocket([.wait(for: try TestSignal())])
        let write = Task.immediate { try await socket.write([UInt8](repeating: 0, count: 64 << 20)) }
        try await eventually("it waits") { socket.writeProgress != nil }
        var settings = try TestCertificates.client()
        settings.handshakeTimeout = .seconds(0.2)
        let error = await #expect(throws: AsyncSocketError.self) { try await socket.startTLS(settings: settings) }
        #expect(error?.code == .handshakeTimeout, "\(String(describing: error))")
        #expect(error?.message.contains("writes") == true, "\(String(describing: error))")
        #expect(await write.outcome == .failed(.handshakeTimeout))
        peer.stop()
    }

    // MARK: - Close

    /// The kind of write that is waiting, if any.
    enum Writer: CaseIterable, Sendable {
        case task, taskBelowTheMark, delegate
    }

    @Test(arguments: Writer.allCases, [false, true])
    func closeThrowsWhenItGivesUpBytes(writer: Writer, isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket([.wait(for: try TestSignal())], isSecure: isSecure)
        let bytes = [UInt8](repeating: 0, count: 16 << 20)
        if writer == .taskBelowTheMark { socket.writeHighWaterMark = 32 << 20 }
        if writer == .delegate {
            socket.write(Data(bytes), tag: 1)
        } else {
            let write = Task.immediate { try await socket.write(bytes) }
            if writer == .taskBelowTheMark { try await write.value }
        }
        try await eventually("it waits") { socket.pendingWriteByteCount > 0 }
        #expect(await outcome { try await socket.close(timeout: .milliseconds(20)) } == .failed(.writeTimeout))
        // A later call has the same result.
        #expect(await outcome { try await socket.close() } == .failed(.writeTimeout))
        peer.stop()
    }

    @Test(arguments: [false, true])
    func closeThrowsWhenThePeerResetsTheConnection(isSecure: Bool) async throws {
        let mayReset = try TestSignal()
        let (socket, _) = try await connectedSocket([.wait(for: mayReset), .reset], isSecure: isSecure)
        let write = Task.immediate { try await socket.write([UInt8](repeating: 0, count: 16 << 20)) }
        try await eventually("it waits") { socket.writeProgress != nil }
        let closing = Task.immediate { try await socket.close() }
        mayReset.fire()
        let end = await closing.outcome
        #expect(end == .failed(.connectionReset), "\(end)")
        #expect(await write.outcome == end)
    }

    @Test(arguments: [false, true])
    func aCancelledCloseThatLosesNothingThrowsNothing(isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket([.expect("all"), .expectEnd], isSecure: isSecure)
        try await socket.write("all")
        let closing = Task.immediate {
            withUnsafeCurrentTask { $0?.cancel() }
            try await socket.close()
        }
        #expect(await closing.outcome == .served)
        #expect(!socket.isConnected)
        _ = try await peer.finish()
    }
}
