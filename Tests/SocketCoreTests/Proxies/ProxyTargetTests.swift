import FoundationEssentials
import SocketCore
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct ProxyTargetTests {
    @Test(arguments: [
        "localhost", "a.example", "xn--bcher-kva.example", "under_score.example.",
        String(repeating: "a", count: 255),
    ])
    func namesAreTakenAsTheyAre(_ name: String) throws {
        #expect(try ProxyTarget(host: name, port: 80) == .name(name, port: 80))
    }

    @Test(arguments: ["127.0.0.1", "::1", "2001:db8::7"])
    func literalsBecomeAddresses(_ literal: String) throws {
        let address = try #require(SocketEndpoint(literal: literal, port: 80))
        #expect(try ProxyTarget(host: literal, port: 80) == .address(address))
    }

    /// Targets that could terminate a request line or a field, that are too long, or that only this machine
    /// understands.
    @Test(arguments: [
        "", "a b", "a\r\nX: y", "a\nb", "a\rb", "a\0", "127.0.0.1\0", "127.0.0.1\r\nX: y", "127.0.0.1 x", "::1\r\n", "a\tb",
        "a/b", "a:80", "[::1", "1.2.3.4.5", "a@b", "a#", "a%0d",
        "b\u{fc}cher.example", "fe80::1%lo", String(repeating: "a", count: 256),
    ])
    func nothingElseGetsIntoARequest(_ host: String) {
        #expect(throws: ProxyFailure.self) { try ProxyTarget(host: host, port: 80) }
    }

    @Test func everyASCIIByteThatIsNotOfAHostNameIsRefused() {
        let allowed = Set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._".utf8)
        for byte in UInt8(0)...127 where !allowed.contains(byte) {
            #expect(throws: ProxyFailure.self) { try ProxyTarget(host: "a" + String(UnicodeScalar(byte)) + "b", port: 80) }
        }
    }

    @Test func aUnixDomainAddressIsRefused() throws {
        let address = try #require(SocketEndpoint(data: .init([1, 0] + Array("/tmp/x".utf8))))
        #expect(throws: ProxyFailure.self) { try ProxyTarget(address) }
    }

    @Test(arguments: [SocketProxy.socks5(host: "", port: 1), .http(host: "a\0b", port: 1), .http(host: "a", port: 0)])
    func aProxyThatIsNowhereIsRefused(_ proxy: SocketProxy) throws {
        let target = try ProxyTarget(host: "a", port: 1)
        #expect(throws: ProxyFailure.self) { try ProxyNegotiation(through: proxy, to: target) }
    }

    @Test func noDescriptionShowsAPassword() {
        let proxy = SocketProxy.socks5(host: "proxy", port: 1080, credentials: .init(username: "user", password: "hidden"))
        var dumped = ""
        dump(proxy, to: &dumped)
        for text in ["\(proxy)", String(reflecting: proxy), String(reflecting: proxy.credentials), dumped] {
            #expect(!text.contains("hidden"))
        }
        #expect("\(proxy)" == "SOCKS proxy proxy:1080")
    }
}
