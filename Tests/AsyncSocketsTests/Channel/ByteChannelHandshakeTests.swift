import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Handshakes on a channel, and their failures.
@Suite struct ByteChannelHandshakeTests {
    @Test(arguments: TLSProtocolVersion.tested, [1, 100, .max])
    func bothSidesAgree(_ version: TLSProtocolVersion, chunk: Int) throws {
        let wire = try ChannelWire(chunk: chunk)
        try wire.beginTLS(version)
        #expect(wire.server.handshake().isIncomplete)
        let answers = try wire.shakeHands()
        guard case .complete(let atClient?, _) = answers.client, case .complete(let atServer?, _) = answers.server else {
            throw Unexpected(description: "\(answers)")
        }
        #expect(atClient.protocolVersion == version && atServer.protocolVersion == version)
        #expect(atClient.cipherSuite == atServer.cipherSuite)
        #expect(!wire.client.channel.hasNews && !wire.server.channel.hasNews)
    }

    @Test func aChannelWithoutTLSHasNoHandshake() throws {
        let (end, _) = try ChannelEnd.pair()
        guard case .incomplete = end.channel.advance(), case .nothing = end.channel.receiveMessages() else {
            throw Unexpected(description: "a handshake without TLS")
        }
        #expect(!end.channel.hasUnsentBytes)
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func theHandshakeWaitsForTheVerdict(_ version: TLSProtocolVersion, isAccepted: Bool) throws {
        let wire = try ChannelWire()
        try wire.beginTLS(version) { $0.trustEvaluation = .manual }
        var question: PeerTrust?
        while question == nil {
            if case .awaitingTrust(let trust) = wire.client.handshake() { question = trust }
            _ = wire.server.handshake()
            _ = try wire.carry()
        }
        #expect(wire.client.handshake().isIncomplete)
        wire.client.channel.decideTrust(isAccepted)
        let answers = try wire.shakeHands()
        #expect(answers.client.isComplete == isAccepted)
        guard !isAccepted else { return #expect(answers.server.isComplete) }
        #expect(answers.client.error?.tls?.code == .trustRejected)
        // A TLS 1.3 server completes its handshake before it receives the alert.
        let error =
            answers.server.error
            ?? {
                _ = wire.server.fillAll(); return wire.server.told.readError
            }()
        #expect(error?.tls?.code == .peerAlert)
    }

    /// One of our clients with a raw socket as its peer.
    private func client() throws -> (ChannelEnd, RawSocket) {
        let (end, peer) = try ChannelEnd.tcp()
        try end.beginTLS(TestCertificates.client())
        #expect(end.handshake().isIncomplete)
        #expect(try peer.receive().first == 22)
        return (end, peer)
    }

    private func answer(at end: ChannelEnd) throws -> ChannelEnd.HandshakeAnswer {
        try end.wait(for: Int16(POLLIN))
        end.channel.expectBytes()
        return end.handshake()
    }

    @Test func aPeerThatSpeaksNoTLSFailsTheHandshake() throws {
        let (end, peer) = try client()
        try peer.send("220 mail.example ESMTP\r\n")
        let error = try answer(at: end).error
        #expect(error?.tls?.code == .notTLS && error?.operation == .startTLS)
    }

    @Test func theAlertIsOutWhenTheHandshakeHasFailed() throws {
        let (end, peer) = try client()
        // An empty ServerHello.
        try peer.send([22, 3, 3, 0, 4, 2, 0, 0, 0])
        let error = try #require(try answer(at: end).error?.tls)
        #expect(error.fault == .peer && error.sentAlert == .decodeError)
        #expect(try peer.receive() == [21, 3, 3, 0, 2, 2, TLSAlert.decodeError.rawValue])
    }

    @Test func aFinInTheMiddleOfTheHandshakeFailsIt() throws {
        let (end, peer) = try client()
        peer.finish()
        let error = try answer(at: end).error
        #expect(error?.tls?.code == .closedDuringHandshake && error?.operation == .startTLS)
    }

    @Test func aResetInTheMiddleOfTheHandshakeFailsIt() throws {
        let (end, peer) = try client()
        peer.resetWhenClosed()
        _ = consume peer
        let error = try answer(at: end).error
        #expect(error?.code == .connectionReset && error?.operation == .startTLS)
    }

    @Test func anAbandonedHandshakeIsToldToThePeer() throws {
        let (end, peer) = try client()
        end.channel.abandonHandshake()
        end.channel.close(.lingering, on: try SocketEventLoop())
        // user_canceled, then close_notify (RFC 8446, 6.1).
        #expect(try peer.receive() == [21, 3, 3, 0, 2, 1, 90, 21, 3, 3, 0, 2, 1, 0])
        #expect(try peer.receive().isEmpty)
    }

    @Test func whatCameBeforeTheHandshakeIsNeverPlaintext() throws {
        let (end, peer) = try ChannelEnd.pair()
        try peer.send("early")
        #expect(end.fill().isBytes)
        try end.beginTLS(TestCertificates.server())
        #expect(end.reads.isEmpty)
        #expect(end.handshake().error?.tls?.code == .notTLS)
        #expect(end.fill().isNothing && end.reads.isEmpty)
    }
}
