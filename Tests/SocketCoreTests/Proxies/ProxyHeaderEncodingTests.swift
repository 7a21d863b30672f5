import AsyncSocketsTesting
import SocketCore
import Testing

/// Encoding with `ProxyHeader`, and decoding of the result.
@Suite struct ProxyHeaderEncodingTests {
    private typealias Vector = ProxyHeaderVector

    @Test func theBytesAreThoseOfTheSpecification() throws {
        var header = try ProxyHeader.tcp("192.0.2.1", 56324, "198.51.100.2", 443)
        #expect(try header.encoded(as: .version1) == Array("PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"))
        #expect(try header.encoded(as: .version2) == Vector.block(Vector.ipv4))
        header.hasChecksum = true
        #expect(try header.encoded(as: .version2) == Vector.block(Vector.ipv4 + [3, 0, 4, 0x20, 0xec, 0x95, 0x49]))
        let ipv6 = try ProxyHeader.tcp("2001:db8::1", 1, "::1", 65535)
        #expect(try ipv6.encoded(as: .version1) == Array("PROXY TCP6 2001:db8::1 ::1 1 65535\r\n"))
        for header in [ProxyHeader.local, .unknown] {
            #expect(try header.encoded(as: .version1) == Array("PROXY UNKNOWN\r\n"))
        }
        #expect(try ProxyHeader.local.encoded(as: .version2) == Vector.block(0x20, 0x00, []))
        #expect(try ProxyHeader.unknown.encoded(as: .version2) == Vector.block(0x21, 0x00, []))
    }

    private static func headers() throws -> [ProxyHeader] {
        let longest = String(repeating: "p", count: SocketEndpoint.maximumUnixPathBytes)
        let paths = [SocketEndpoint(unixPath: "/run/s"), SocketEndpoint(abstractName: "name"), SocketEndpoint(unixPath: longest)]
        let unix = paths.compactMap { $0 }
        return [
            .local, .unknown, try .full(), try .tcp("::1", 1, "fd00::1", 2), try .tcp("1.2.3.4", 0, "5.6.7.8", 65535),
            ProxyHeader(source: unix[0], destination: unix[1]),
            ProxyHeader(source: unix[2], destination: unix[0], transport: .datagram),
        ]
    }

    @Test func version2BringsEverythingBack() throws {
        for header in try Self.headers() {
            let bytes = try header.encoded(as: .version2)
            let transcript = ProxyHeaderTranscript(of: bytes)
            #expect(transcript.header == header)
            #expect(transcript.byteCount == bytes.count)
        }
    }

    @Test func version1BringsTheAddressesBack() throws {
        for header in [try ProxyHeader.tcp("255.255.255.255", 65535, "0.0.0.0", 0), try .tcp("::ffff:1.2.3.4", 1, "::", 2)] {
            #expect(ProxyHeaderTranscript(of: try header.encoded(as: .version1)).header == header)
        }
    }

    @Test func theZoneOfAnAddressStaysOnItsMachine() throws {
        let header = try ProxyHeader.tcp("fe80::1%lo", 1, "fe80::2%lo", 2)
        let withoutZone = try ProxyHeader.tcp("fe80::1", 1, "fe80::2", 2)
        for version in [ProxyHeader.Version.version1, .version2] {
            #expect(ProxyHeaderTranscript(of: try header.encoded(as: version)).header == withoutZone)
        }
    }

    @Test func nothingIsLeftOutInSilence() throws {
        let tcp = try ProxyHeader.tcp("1.2.3.4", 1, "5.6.7.8", 2)
        let unix = try #require(SocketEndpoint(unixPath: "/s"))
        let machine = SocketEndpoint(vsockPort: 1, contextID: 2)
        let (ipv4, ipv6) = (try SocketEndpoint.loopback(), try SocketEndpoint.loopback("::1"))
        func changed(_ header: ProxyHeader, _ change: (inout ProxyHeader) -> Void) -> ProxyHeader {
            var header = header
            change(&header)
            return header
        }
        let refused: [(ProxyHeader, [ProxyHeader.Version])] = [
            (try .full(), [.version1]),
            (changed(tcp) { $0.hasChecksum = true }, [.version1]),
            (ProxyHeader(source: unix, destination: unix), [.version1]),
            (ProxyHeader(source: ipv4, destination: ipv4, transport: .datagram), [.version1]),
            (ProxyHeader(source: ipv4, destination: ipv6), [.version1, .version2]),
            (ProxyHeader(source: machine, destination: machine), [.version1, .version2]),
            (changed(.local) { $0.hasChecksum = true }, [.version1, .version2]),
            (changed(.unknown) { $0.authority = "host" }, [.version1, .version2]),
            (changed(tcp) { $0.authority = "a\nb" }, [.version1, .version2]),
            (changed(tcp) { $0.uniqueID = Array(repeating: 1, count: 129) }, [.version1, .version2]),
            (changed(tcp) { $0.otherFields = [.init(type: 3, value: [0, 0, 0, 0])] }, [.version2]),
            (changed(tcp) { $0.otherFields = [.init(type: 0xe0, value: Array(repeating: 1, count: 65536))] }, [.version2]),
            (changed(tcp) { $0.otherFields = [.init(type: 0xe0, value: Array(repeating: 1, count: 65530))] }, [.version2]),
        ]
        for (header, versions) in refused {
            for version in versions {
                let error = #expect(throws: ProxyHeaderError.self) { try header.encoded(as: version) }
                #expect(error?.code == .notEncodable)
            }
        }
    }
}
