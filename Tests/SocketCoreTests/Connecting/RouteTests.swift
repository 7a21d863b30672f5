import Glibc
import SocketCore
import Testing

@Suite struct RouteTests {
    private static func addresses(_ hosts: String...) -> [SocketEndpoint] {
        hosts.compactMap { SocketEndpoint(literal: $0, port: 80) }
    }

    @Test func d2ADisabledFamilyIsLeftOutWhenAHostHasBoth() throws {
        let host = Self.addresses("1.1.1.1", "::1", "2.2.2.2")
        #expect(try RoutePolicy(families: .ipv4).routes(to: host).map(\.destination) == Self.addresses("1.1.1.1", "2.2.2.2"))
        #expect(try RoutePolicy(families: .ipv6).routes(to: host).map(\.destination) == Self.addresses("::1"))
    }

    @Test func d2AHostOfADisabledFamilyHasNoRoute() throws {
        guard
            case .familyDisabled(let addresses) = #expect(
                throws: NoRoute.self,
                performing: {
                    try RoutePolicy(families: .ipv4).routes(to: Self.addresses("::1"))
                })
        else {
            Issue.record("another reason")
            return
        }
        #expect(addresses == Self.addresses("::1"))
    }

    @Test func eachFamilyLeavesFromTheInterfacesAddressOfThatFamily() throws {
        let policy = RoutePolicy(interface: try LocalInterface("localhost:4000"))
        let routes = try policy.routes(to: Self.addresses("1.1.1.1", "2001:db8::1"))
        #expect(routes.map { $0.source?.description } == ["127.0.0.1:4000", "[::1]:4000"])
    }

    @Test func aFamilyThatTheInterfaceLacksIsNotTried() throws {
        let policy = RoutePolicy(interface: try LocalInterface("127.0.0.1"))
        #expect(try policy.routes(to: Self.addresses("::1", "1.1.1.1")).map(\.destination) == Self.addresses("1.1.1.1"))
        guard
            case .notFromInterface("127.0.0.1", _) = #expect(
                throws: NoRoute.self,
                performing: {
                    try policy.routes(to: Self.addresses("::1"))
                })
        else {
            Issue.record("another reason")
            return
        }
    }

    @Test func aLinkLocalDestinationGetsTheScopeOfTheInterface() throws {
        let policy = RoutePolicy(interface: try LocalInterface("lo"))
        let index = if_nametoindex("lo")
        let routes = try policy.routes(to: Self.addresses("fe80::1", "2001:db8::1"))
        #expect(routes.map { $0.destination.host } == ["fe80::1%lo", "2001:db8::1"])
        #expect(try policy.routes(to: Self.addresses("fe80::1%\(index + 1)")).first?.destination.host != "fe80::1%lo")
    }
}
