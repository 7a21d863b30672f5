import AsyncSocketsTesting
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

@Suite(.ownThreads) struct BrokenHandshakeTests {
    @Test(arguments: [
        "HTTP/1.1 400 Bad Request\r\n\r\n", "220 mail.example.org ESMTP\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "+OK\r\n+OK\r\n",
    ])
    func aServerThatDoesNotSpeakTLSIsToldApart(greeting: String) throws {
        let pair = try Fixture().pair()
        _ = pair.client.handshake()
        pair.client.receive(greeting)
        let error = pair.client.handshake().error
        #expect(error?.code == .notTLS)
        #expect(error?.fault == .peer)
        #expect(error?.message.contains(String(greeting.prefix(3))) == true)
    }

    @Test(arguments: ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT a:443 HTTP/1.1\r\n\r\n", "EHLO me\r\nEHLO me\r\n"])
    func aClientThatDoesNotSpeakTLSIsToldApart(request: String) throws {
        let pair = try Fixture().pair()
        _ = pair.server.handshake()
        pair.server.receive(request)
        #expect(pair.server.handshake().error?.code == .notTLS)
    }

    @Test func randomBytesAreNotTLS() throws {
        let pair = try Fixture().pair()
        _ = pair.server.handshake()
        pair.server.receive((0..<200).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ 99) })
        #expect(pair.server.handshake().error?.code == .notTLS)
    }

    @Test(arguments: versions, [true, false])
    func anEndAtAnyByteOfTheHandshakeIsATypedError(version: TLSProtocolVersion, atServer: Bool) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        let transcript = try fixture.bytesReceived(atServer: atServer)
        for end in 0..<transcript {
            let pair = try fixture.pair()
            let victim = atServer ? pair.server : pair.client
            // The length of a signature varies by a byte or two between handshakes.
            guard pair.shakeHands(endingAfter: end, atServer: atServer) else { continue }
            let answer = victim.handshake()
            #expect(answer.error?.code == .closedDuringHandshake, "after \(end) bytes: \(answer)")
        }
    }

    @Test(arguments: versions, [true, false])
    func aChangedByteAnywhereInTheHandshakeIsATypedError(version: TLSProtocolVersion, atServer: Bool) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        let transcript = try fixture.bytesReceived(atServer: atServer)
        for place in stride(from: 0, to: transcript, by: 3) {
            let pair = try fixture.pair()
            pair.shakeHands(changing: place, atServer: atServer)
            let victim = atServer ? pair.server : pair.client
            victim.receiveEndOfFile()
            // A few bytes, such as the legacy version of a record, are ignored, so the handshake completes.
            guard let error = victim.handshake().error else { continue }
            #expect(error.code != .internalError, "byte \(place): \(error)")
            #expect(error.fault == .peer || error.fault == .certificate, "byte \(place): \(error)")
        }
    }

    @Test func aCloseNotifyDuringTheHandshakeEndsIt() throws {
        let pair = try Fixture(.tls12).pair()
        _ = pair.client.handshake()
        pair.client.receive([21, 3, 3, 0, 2, 1, 0])
        #expect(pair.client.handshake().error?.code == .closedDuringHandshake)
    }

    @Test func theErrorNamesTheOperationAndOpenSSLsReason() throws {
        let pair = try Fixture().pair()
        _ = pair.client.handshake()
        pair.client.receive("HTTP/1.1 400 Bad Request\r\n\r\n")
        let error = try #require(pair.client.handshake().error)
        #expect(error.operation == "SSL_do_handshake")
        #expect(!error.openSSLStack.isEmpty)
        #expect(error.description.contains("notTLS"))
    }
}

extension Fixture {
    /// Returns the number of bytes that one side receives in a complete handshake.
    func bytesReceived(atServer: Bool) throws -> Int {
        let pair = try pair()
        var total = 0
        var isBusy = true
        while isBusy {
            _ = pair.client.handshake()
            _ = pair.server.handshake()
            total += (atServer ? pair.client.output : pair.server.output).count
            isBusy = pair.carry()
        }
        return total
    }
}

extension EnginePair {
    /// Performs a handshake in which the wire to one side ends after `limit` bytes. Returns false if there
    /// were no more.
    func shakeHands(endingAfter limit: Int, atServer: Bool) -> Bool {
        let victim = atServer ? server : client
        var total = 0
        tamper(atServer: atServer) { bytes, offset in
            total += bytes.count
            return Array(bytes.prefix(max(0, limit - offset)))
        }
        victim.receiveEndOfFile()
        return total > limit
    }

    /// Performs a handshake in which one byte on the wire to one side is changed.
    func shakeHands(changing place: Int, atServer: Bool) {
        tamper(atServer: atServer) { bytes, offset in
            var bytes = bytes
            if bytes.indices.contains(place - offset) { bytes[place - offset] ^= 0x55 }
            return bytes
        }
    }

    private func tamper(atServer: Bool, _ change: ([UInt8], Int) -> [UInt8]) {
        let (victim, other) = atServer ? (server, client) : (client, server)
        var offset = 0
        for _ in 0..<10 {
            _ = client.handshake()
            _ = server.handshake()
            let toVictim = Array(other.output.readableBytes)
            other.output.consume(toVictim.count)
            victim.receive(change(toVictim, offset))
            offset += toVictim.count
            let toOther = Array(victim.output.readableBytes)
            victim.output.consume(toOther.count)
            other.receive(toOther)
        }
    }
}
