import AsyncSocketsTesting
import SocketTLS
import Testing

@Suite struct NegotiationTests {
    @Test(arguments: versions)
    func theServersPreferredProtocolIsChosen(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.applicationProtocols = ["http/1.1", "h2", "imap"]
        fixture.server.applicationProtocols = ["smtp", "h2", "http/1.1"]
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.client.session?.applicationProtocol == "h2")
        #expect(pair.server.session?.applicationProtocol == "h2")
    }

    @Test(arguments: versions)
    func noCommonProtocolIsFatal(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.applicationProtocols = ["imap"]
        fixture.server.applicationProtocols = ["smtp"]
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.serverError?.code == .noSharedParameters)
        #expect(pair.serverError?.sentAlert == .noApplicationProtocol)
        #expect(pair.clientError?.alert == .noApplicationProtocol)
    }

    @Test(arguments: versions)
    func aServerWithoutProtocolsChoosesNone(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.applicationProtocols = ["imap"]
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.client.session?.applicationProtocol == nil)
    }

    @Test(arguments: versions)
    func aClientWithoutProtocolsGetsNone(version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.applicationProtocols = ["imap"]
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.server.session?.applicationProtocol == nil)
    }

    @Test func theNewestCommonVersionIsChosen() throws {
        var fixture = try Fixture()
        fixture.client.minimumVersion = .tls12
        fixture.server.minimumVersion = .tls12
        fixture.server.maximumVersion = nil
        fixture.client.maximumVersion = .tls12
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.client.session?.protocolVersion == .tls12)
    }

    @Test(arguments: versions)
    func noCommonVersionIsFatal(clientVersion: TLSProtocolVersion) throws {
        var fixture = try Fixture(clientVersion)
        let other = clientVersion == .tls12 ? TLSProtocolVersion.tls13 : .tls12
        fixture.server.minimumVersion = other
        fixture.server.maximumVersion = other
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.serverError?.code == .noSharedParameters)
        #expect(pair.serverError?.fault == .peer)
        #expect(pair.clientError?.code == .peerAlert)
        #expect(pair.clientError?.alert == .protocolVersion)
    }

    @Test func versionsAreOrderedAndNamed() {
        #expect(TLSProtocolVersion.tls12 < .tls13)
        #expect(TLSProtocolVersion.tls13.description == "TLSv1.3")
    }
}
