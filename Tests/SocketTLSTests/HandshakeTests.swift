import AsyncSocketsTesting
import SocketTLS
import Testing

@Suite struct HandshakeTests {
    @Test(arguments: versions, [1, 7, Int.max])
    func twoEnginesShakeHandsAndExchangeData(version: TLSVersion, chunk: Int) throws {
        let pair = try Fixture(version).pair(chunk: chunk)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.client.write("hello").accepted == 5)
        #expect(pair.server.write("welcome").accepted == 7)
        pair.carryAll()
        #expect(pair.server.readAll().text == "hello")
        #expect(pair.client.readAll().text == "welcome")
    }

    @Test(arguments: versions)
    func theSessionTellsWhatWasAgreedOn(version: TLSVersion) throws {
        let pair = try Fixture(version).pair()
        pair.shakeHands()
        let client = try #require(pair.client.session)
        let server = try #require(pair.server.session)
        #expect(client.protocolVersion == version)
        #expect(client.cipherSuite.hasPrefix("TLS_"))
        #expect(client.cipherSuite == server.cipherSuite)
        #expect(client.group != nil)
        #expect(client.group == server.group)
        #expect(client.serverName == Fixture.host)
        #expect(server.serverName == Fixture.host)
        #expect(client.peerCertificates.map(\.commonName) == [Fixture.host])
        #expect(server.peerCertificates.isEmpty)
        #expect(!client.isResumed && !server.isResumed)
        #expect(client.applicationProtocol == nil)
    }
}
