import SocketCore
import Testing

@Suite struct LocalInterfaceTests {
    @Test(arguments: [
        ("127.0.0.1", ["127.0.0.1:0"]), ("127.0.0.1:4000", ["127.0.0.1:4000"]), ("127.9.9.9", ["127.9.9.9:0"]),
        ("::1", ["[::1]:0"]), ("[::1]", ["[::1]:0"]), ("[::1]:4000", ["[::1]:4000"]), ("[::1]:65535", ["[::1]:65535"]),
        ("localhost", ["127.0.0.1:0", "[::1]:0"]), ("loopback:7", ["127.0.0.1:7", "[::1]:7"]),
        (":4000", ["0.0.0.0:4000", "[::]:4000"]), ("", ["0.0.0.0:0", "[::]:0"]),
    ])
    func everySpellingIsRead(_ text: String, _ addresses: [String]) throws {
        #expect(try LocalInterface(text).addresses.map(\.description) == addresses)
    }

    @Test func aNameMeansAllAddressesOfTheInterface() throws {
        let addresses = try LocalInterface("lo:4000").addresses
        #expect(addresses.first?.description == "127.0.0.1:4000")
        #expect(addresses.contains { $0.description == "[::1]:4000" })
        #expect(try LocalInterface("lo").addresses.allSatisfy { $0.port == 0 })
    }

    @Test(arguments: [
        "nowhere0", "nowhere0:80", "lo:", "lo:x", "lo:+80", "lo:65536", "lo:80:81", "[::1", "[::1]80", "[::1]:", "[::1]:x",
        "[lo]", "[127.0.0.1]",
        "1", "127.1", "no address", "127.0.0.1:",
    ])
    func everythingElseIsRefused(_ text: String) throws {
        let error = #expect(throws: InterfaceError.self) { try LocalInterface(text) }
        #expect(error?.message.contains(text) == true)
    }

    @Test func aDestinationIsMetFromItsOwnFamily() throws {
        let lo = try LocalInterface("localhost")
        let ipv4 = try #require(SocketEndpoint(literal: "10.0.0.1", port: 1))
        let ipv6 = try #require(SocketEndpoint(literal: "2001:db8::1", port: 1))
        #expect(lo.source(for: ipv4)?.host == "127.0.0.1")
        #expect(lo.source(for: ipv6)?.host == "::1")
        #expect(try LocalInterface("127.0.0.1").source(for: ipv6) == nil)
    }
}
