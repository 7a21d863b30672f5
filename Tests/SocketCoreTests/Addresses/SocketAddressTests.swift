import FoundationEssentials
import Glibc
import SocketCore
import Testing

@Suite struct SocketAddressTests {
    @Test func anEndpointFromDataHasTheHostPortAndFamily() throws {
        let ipv4 = try #require(SocketEndpoint(data: SocketEndpoint(literal: "192.0.2.1", port: 80)?.data ?? Data()))
        #expect(ipv4.host == "192.0.2.1" && ipv4.port == 80 && ipv4.family == .ipv4)
        let ipv6 = try #require(SocketEndpoint(data: SocketEndpoint(literal: "2001:db8::1", port: 443)?.data ?? Data()))
        #expect(ipv6.host == "2001:db8::1" && ipv6.port == 443 && ipv6.family == .ipv6)
        #expect(ipv6.unixPath == nil && ipv6.abstractName == nil)
        #expect(SocketEndpoint(data: Data([2, 0, 1])) == nil)
        #expect(SocketEndpoint(data: Data(count: 200)) == nil)
    }

    @Test func aUnixPathIsKeptWhole() throws {
        let path = "/run/é/" + String(repeating: "x", count: SocketEndpoint.maximumUnixPathBytes - 8)
        let address = try #require(SocketEndpoint(unixPath: path))
        #expect(address.unixPath == path)
        #expect(address.family == .unix && address.host == nil && address.port == nil && address.abstractName == nil)
        #expect(address.description == "unix:" + path)
        #expect(SocketEndpoint(data: address.data) == address)
    }

    @Test func aPathThatDoesNotFitIsRefusedAndNotCut() {
        #expect(SocketEndpoint(unixPath: "/" + String(repeating: "x", count: SocketEndpoint.maximumUnixPathBytes)) == nil)
        #expect(SocketEndpoint(unixPath: String(repeating: "é", count: 54)) == nil)
        #expect(SocketEndpoint(unixPath: "") == nil)
        #expect(SocketEndpoint(unixPath: "/tmp/a\0b") == nil)
    }

    @Test func anAbstractNameIsTheBytesAfterAZero() throws {
        let address = try #require(SocketEndpoint(abstractName: "service"))
        #expect(address.abstractName == "service")
        #expect(address.unixPath == nil)
        #expect(address.description == "unix:@service")
        #expect(address.data.count == 2 + 1 + 7)
        #expect(SocketEndpoint(abstractName: "") == nil)
        #expect(SocketEndpoint(abstractName: String(repeating: "x", count: SocketEndpoint.maximumAbstractNameBytes)) != nil)
        #expect(SocketEndpoint(abstractName: String(repeating: "x", count: SocketEndpoint.maximumAbstractNameBytes + 1)) == nil)
    }

    @Test func aSocketWithoutANameHasNeither() throws {
        let unnamed = try #require(SocketEndpoint(data: Data([UInt8(AF_UNIX), 0])))
        #expect(unnamed.unixPath == nil && unnamed.abstractName == nil)
        #expect(unnamed.description == "unix:")
    }

    @Test func aNameThatAPeerHasChosenStaysOnOneLine() throws {
        let address = try #require(SocketEndpoint(abstractName: "a\nb\u{1B}[31m"))
        #expect(address.description == "unix:@a?b?[31m")
    }
}
