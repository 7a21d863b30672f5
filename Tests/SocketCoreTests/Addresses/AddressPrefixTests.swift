import SocketCore
import Testing

@Suite struct AddressPrefixTests {
    @Test(arguments: [
        ("192.0.2.0/24", "192.0.2.255", true), ("192.0.2.0/24", "192.0.3.0", false), ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.2", false), ("0.0.0.0/0", "255.255.255.255", true), ("0.0.0.0/0", "::1", false),
        ("192.0.2.128/25", "192.0.2.127", false), ("192.0.2.128/25", "192.0.2.128", true),
        ("2001:db8::/33", "2001:db8:7fff::1", true), ("2001:db8::/33", "2001:db8:8000::1", false),
        ("::/0", "2001:db8::1", true), ("::1", "::1", true), ("192.0.2.0/24", "::ffff:192.0.2.7", true),
        ("::ffff:0:0/96", "::ffff:192.0.2.7", true), ("192.0.2.0/24", "::192.0.2.7", false),
        ("fe80::/10", "fe80::1%lo", true),
    ])
    func anAddressIsInAPrefixOrNot(_ prefix: String, _ literal: String, _ isIn: Bool) throws {
        let address = try #require(SocketEndpoint(literal: literal, port: 80))
        #expect(try #require(AddressPrefix(prefix)).contains(address) == isIn)
    }

    @Test func aUnixAddressIsInNone() throws {
        let address = try #require(SocketEndpoint(unixPath: "/s"))
        #expect(try !#require(AddressPrefix("0.0.0.0/0")).contains(address))
    }

    @Test(arguments: ["", "/", "/8", "10.0.0.0/", "10.0.0.0/8/8", "10.0.0.0/ 8", "10.0.0.0/+8", "10.0.0.1/31", "::2/126x"])
    func otherTextIsRefused(_ text: String) {
        #expect(AddressPrefix(text) == nil)
    }
}
