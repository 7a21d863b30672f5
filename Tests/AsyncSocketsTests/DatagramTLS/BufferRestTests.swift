internal import SocketCore
internal import SocketTLS
internal import SocketTestSupport
internal import Testing

@testable internal import AsyncSockets

/// OpenSSL's buffers of an idle socket.
@Suite struct BufferRestTests {
    private func time(_ seconds: Double) throws -> Deadline {
        try #require(Deadline(after: seconds, from: .distantPast))
    }

    @Test func aSocketThatIsUsedKeepsThem() throws {
        let shared = KeptBuffers(limit: 4)
        var rest = BufferRest(shared)
        #expect(try rest.keep(at: time(10)) && rest.deadline == time(10 + BufferRest.interval))
        for second in 11..<20 {
            #expect(try rest.keep(at: time(Double(second) - 0.5)))
            #expect(try !rest.expire(at: time(Double(second))))
            #expect(try rest.deadline == time(Double(second) + BufferRest.interval))
        }
        #expect(shared.keptCount == 1)
    }

    @Test func aSilentSocketFreesThem() throws {
        let shared = KeptBuffers(limit: 4)
        var rest = BufferRest(shared)
        #expect(try rest.keep(at: time(10)))
        // An early event has no effect.
        #expect(try !rest.expire(at: time(10.5)) && shared.keptCount == 1)
        #expect(try rest.expire(at: time(11)))
        #expect(rest.deadline.isNever && shared.keptCount == 0)
        #expect(try !rest.expire(at: time(20)))
        #expect(try rest.keep(at: time(30)) && rest.deadline == time(31))
    }

    @Test func beyondTheLimitTheyAreFreedAtOnce() throws {
        let shared = KeptBuffers(limit: 2)
        var rests = [BufferRest(shared), BufferRest(shared), BufferRest(shared)]
        #expect(try rests[0].keep(at: time(1)) && rests[1].keep(at: time(1)))
        #expect(try !rests[2].keep(at: time(1)))
        #expect(rests[2].deadline.isNever && shared.keptCount == 2)
        rests[0].end()
        rests[0].end()
        #expect(try rests[2].keep(at: time(2)) && shared.keptCount == 2)
    }

    @Test func aLayerKeepsThemUntilItWasSilentForAWhile() throws {
        let (client, server) = (try engine(TestCertificates.client().values), try engine(TestCertificates.server().values))
        for _ in 0..<32 where !client.isEstablished || !server.isEstablished {
            _ = client.handshake()
            carry(from: client, to: server)
            _ = server.handshake()
            carry(from: server, to: client)
        }
        try #require(client.isEstablished && server.isEstablished && client.hasBuffers)
        let channel = DatagramChannel(try DatagramDescriptor(opening: .ipv4), maximumSize: 2048, coalesces: false)
        defer { channel.descriptor.socket.close() }
        let (shared, peer) = (KeptBuffers(limit: 1), try InternetAddress.discard)
        let layer = DatagramLayer(client, over: channel, with: peer, isSizeGiven: true, DatagramCounts(), keeping: shared)
        layer.rest()
        #expect(client.hasBuffers && shared.keptCount == 1)
        let second = DatagramLayer(server, over: channel, with: peer, isSizeGiven: true, DatagramCounts(), keeping: shared)
        second.rest()
        #expect(!server.hasBuffers)
        layer.expire(at: layer.restDeadline)
        #expect(!client.hasBuffers && shared.keptCount == 0)
        // A message allocates them again.
        #expect([1, 2, 3].withUnsafeBytes { layer.seal($0) } && client.hasBuffers)
    }

    private func engine(_ settings: TLSSettingValues) throws -> DTLSEngine {
        try DTLSEngine(context: TLSContext.context(for: settings, over: .datagrams), settings: settings, size: 1400)
    }

    private func carry(from sender: DTLSEngine, to receiver: DTLSEngine) {
        sender.sendOutput { datagrams in
            for datagram in datagrams { receiver.receive(datagram) }
            return datagrams.count
        }
    }
}
