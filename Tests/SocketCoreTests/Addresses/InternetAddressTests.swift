import FoundationEssentials
import Testing

@testable import SocketCore

@Suite struct InternetAddressTests {
    private func address(_ host: String, _ port: UInt16) throws -> SocketEndpoint {
        try #require(SocketEndpoint(literal: host, port: port))
    }

    @Test(arguments: ["192.0.2.7", "0.0.0.0", "2001:db8::1:2", "::ffff:192.0.2.7", "fe80::1%lo"])
    func itIsTheSameAddress(_ host: String) throws {
        for port: UInt16 in [0, 1, 443, 65_535] {
            let whole = try address(host, port)
            let short = InternetAddress(whole)
            #expect(short.socketAddress == whole && short.port == port)
            #expect(short.isIPv6 == (whole.family == .ipv6) && short.isIPv4 == (whole.family == .ipv4))
            #expect(short.withHostBytes { Array($0) } == whole.hostBytes)
            let kernels = whole.data.withUnsafeBytes { InternetAddress($0) }
            #expect(kernels == short && kernels?.hashValue == short.hashValue)
        }
    }

    @Test func otherHostsAndPortsAreOtherAddresses() throws {
        let all = try [
            address("192.0.2.7", 1), address("192.0.2.7", 2), address("192.0.2.8", 1), address("::ffff:192.0.2.7", 1),
            address("2001:db8::1", 1), address("2001:db8::2", 1), address("2001:db8:1::1", 1), address("fe80::1%lo", 1),
            address("fe80::1", 1),
        ].map { InternetAddress($0) }
        #expect(Set(all).count == all.count)
        #expect(all[0].hasHost(of: all[1]) && !all[0].hasHost(of: all[2]) && !all[0].hasHost(of: all[3]))
        #expect(!all[4].hasHost(of: all[5]) && !all[4].hasHost(of: all[6]) && !all[7].hasHost(of: all[8]))
    }

    @Test func anotherFamilyBecomesNoAddress() throws {
        let other = InternetAddress(try #require(SocketEndpoint(unixPath: "/run/service")))
        #expect(!other.isIPv4 && !other.isIPv6)
        #expect(withUnsafeTemporaryAllocation(byteCount: 32, alignment: 16) { other.copy(to: $0.baseAddress!) } == 0)
        let bytes = [UInt8](repeating: 0, count: 28)
        #expect(bytes.withUnsafeBytes { InternetAddress($0) } == nil)
        #expect(bytes.prefix(8).withUnsafeBytes { InternetAddress($0) } == nil)
    }
}
