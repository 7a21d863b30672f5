import Glibc
import SocketCore
import Testing

/// Version 2 of the PROXY protocol.
@Suite struct ProxyHeaderBlockTests {
    private typealias Vector = ProxyHeaderVector

    private static let unixRoom = [UInt8](repeating: 0, count: 108)

    private func header(_ bytes: [UInt8]) throws -> ProxyHeader {
        let transcript = ProxyHeaderTranscript(of: bytes + [0x16, 3, 1])
        #expect(transcript.byteCount == bytes.count)
        #expect(transcript.askedForLittleEnough)
        let header = try #require(transcript.header, "\(transcript.answer)")
        #expect(ProxyHeader.parsed(bytes + [0x0d]) == .complete(header, consumedCount: bytes.count))
        return header
    }

    @Test func tcpOverIPv4() throws {
        let expected = try ProxyHeader.tcp("192.0.2.1", 56324, "198.51.100.2", 443)
        #expect(try header(Vector.block(Vector.ipv4)) == expected)
    }

    @Test func udpOverIPv6() throws {
        let source: [UInt8] = [0x20, 0x01, 0x0d, 0xb8] + Array(repeating: 0, count: 11) + [1]
        let destination: [UInt8] = [0x20, 0x01, 0x0d, 0xb8] + Array(repeating: 0, count: 11) + [2]
        let found = try header(Vector.block(0x21, 0x22, source + destination + [0, 53, 0xff, 0xff]))
        #expect(found.source == SocketEndpoint(literal: "2001:db8::1", port: 53))
        #expect(found.destination == SocketEndpoint(literal: "2001:db8::2", port: 65535))
        #expect(found.transport == .datagram)
    }

    @Test func unixPathsAbstractNamesAndNoNames() throws {
        func room(_ bytes: [UInt8]) -> [UInt8] { bytes + Self.unixRoom.dropFirst(bytes.count) }
        let path = try header(Vector.block(0x21, 0x31, room(Array("/run/s\0garbage")) + room([0] + Array("name"))))
        #expect(path.source == SocketEndpoint(unixPath: "/run/s"))
        #expect(path.destination == SocketEndpoint(abstractName: "name"))
        let longest = String(repeating: "p", count: 108)
        let full = try header(Vector.block(0x21, 0x32, Array(longest) + room([])))
        #expect(full.source?.unixPath == longest)
        #expect(full.destination.map { "\($0)" } == "unix:")
        #expect(full.transport == .datagram)
    }

    /// The block of LOCAL is skipped, whatever its contents and family.
    @Test(
        arguments: [
            (0x00, []), (0x11, ProxyHeaderVector.ipv4), (0xff, [1, 2, 3]), (0x11, [1]), (0x00, [3, 0, 4, 9, 9, 9, 9]),
        ] as [(UInt8, [UInt8])])
    func aConnectionOfTheProxyItselfHasNoAddresses(kind: UInt8, rest: [UInt8]) throws {
        #expect(try header(Vector.block(0x20, kind, rest)) == .local)
    }

    @Test(
        arguments: [(0x00, []), (0x00, [1, 2, 3]), (0x01, [9]), (0x10, ProxyHeaderVector.ipv4), (0x02, [])] as [(UInt8, [UInt8])])
    func anUnspecifiedFamilyOrTransportHasNoAddresses(kind: UInt8, rest: [UInt8]) throws {
        #expect(try header(Vector.block(0x21, kind, rest)) == .unknown)
    }

    @Test func eachFieldIsWhatItsTypeSays() throws {
        var tls: [UInt8] = [0x03, 0, 0, 0, 0, 0x2f, 0, 0]
        for (type, text) in [(0x21, "TLSv1.2"), (0x22, "Zoë"), (0x23, "C"), (0x24, "S"), (0x25, "K")] as [(UInt8, String)] {
            tls += Vector.field(type, text)
        }
        var fields: [UInt8] = [0x04, 0, 1, 0xaa, 0x04, 0, 0, 0x05, 0, 2, 0, 0xff, 0xe0, 0, 0, 0xea, 0, 1, 7]
        for (type, text) in [(0x01, "h2"), (0x02, "host"), (0x30, "ns")] as [(UInt8, String)] {
            fields += Vector.field(type, text)
        }
        fields += [0x20, 0, UInt8(tls.count)] + tls
        let found = try header(Vector.block(Vector.ipv4 + fields))
        #expect(found.applicationProtocol == Array("h2"))
        #expect(found.authority == "host" && found.networkNamespace == "ns" && found.uniqueID == [0, 0xff])
        #expect(found.otherFields == [.init(type: 0xe0, value: []), .init(type: 0xea, value: [7])])
        #expect(!found.hasChecksum)
        let client = try #require(found.clientTLS)
        #expect(client.flags == [.usesTLS, .presentedCertificate] && client.verifyResult == 0 && client.hasVerifiedCertificate)
        #expect(client.version == "TLSv1.2" && client.commonName == "Zoë" && client.cipherSuite == "C")
        #expect(client.signatureAlgorithm == "S" && client.keyAlgorithm == "K")
        #expect(client.otherFields == [.init(type: 0x2f, value: [])])
    }

    @Test func aResultOfZeroWithoutACertificateIsNoVerification() {
        typealias TLS = ProxyHeader.ClientTLS
        #expect(!TLS(flags: .usesTLS, verifyResult: 0).hasVerifiedCertificate)
        #expect(!TLS(flags: .presentedCertificate, verifyResult: 10).hasVerifiedCertificate)
        #expect(TLS(flags: .presentedCertificateInSession, verifyResult: 0).hasVerifiedCertificate)
    }

    /// The checksum was computed with another program.
    @Test func aWrongChecksumIsRefusedWhereverTheDamageIs() throws {
        let bytes = Vector.block(Vector.ipv4 + [3, 0, 4] + [0x20, 0xec, 0x95, 0x49])
        var expected = try ProxyHeader.tcp("192.0.2.1", 56324, "198.51.100.2", 443)
        expected.hasChecksum = true
        #expect(try header(bytes) == expected)
        for index in [16, 19, 20, 23, 24, 26, 27, 31, 32, 33, 34] {
            for bit in 0..<8 {
                var damaged = bytes
                damaged[index] ^= 1 << bit
                #expect(ProxyHeaderTranscript(of: damaged).failure?.code == .wrongChecksum)
            }
        }
    }

    /// The number of bytes after which the error is detected.
    @Test func aBlockIsRefusedWithItsFirstWrongByte() {
        for index in Vector.signature.indices.dropFirst() {
            var bytes = Vector.block(Vector.ipv4)
            bytes[index] ^= 1
            #expect(ProxyHeaderTranscript(of: bytes).byteCount == index + 1)
        }
        let wrong: [(head: [UInt8], byteCount: Int)] = [
            ([0x11, 0x11, 0, 12], 13), ([0x31, 0x11, 0, 12], 13), ([0x22, 0x11, 0, 12], 13), ([0x2f, 0x11, 0, 12], 13),
            ([0x21, 0x41, 0, 12], 14), ([0x21, 0xf1, 0, 12], 14), ([0x21, 0x13, 0, 12], 14), ([0x21, 0x1f, 0, 12], 14),
            ([0x21, 0x11, 0, 11], 16), ([0x21, 0x21, 0, 35], 16), ([0x21, 0x31, 0, 215], 16), ([0x21, 0x11, 0, 0], 16),
        ]
        for (head, byteCount) in wrong {
            let transcript = ProxyHeaderTranscript(of: Vector.signature + head + Self.unixRoom + Self.unixRoom)
            #expect(transcript.failure?.code == .malformed, "\(head)")
            #expect(transcript.byteCount == byteCount, "\(head)")
        }
    }

    @Test(
        arguments: [
            [0x01], [0x01, 0], [0x01, 0, 1], [0x01, 0xff, 0xff, 1], [0xe0, 0, 0, 0], [0x03, 0, 3, 1, 2, 3], [0x03, 0, 0],
            [0x02, 0, 1, 0xff], [0x02, 0, 3, 0x61, 0, 0x62], [0x02, 0, 1, 0x0a], [0x30, 0, 1, 0x7f], [0x20, 0, 4, 1, 0, 0, 0],
            [0x20, 0, 6, 1, 0, 0, 0, 0, 0x21], [0x20, 0, 8, 1, 0, 0, 0, 0, 0x22, 0, 1],
            [0x20, 0, 9, 1, 0, 0, 0, 0, 0x22, 0, 1, 0xc3],
            [0x20, 0, 11, 1, 0, 0, 0, 0, 0x22, 0, 0, 0x22, 0, 0], [0x01, 0, 0, 0x01, 0, 0],
            [0x05, 0, 129] + [UInt8](repeating: 1, count: 129),
            [0x03, 0, 4, 0, 0, 0, 0, 0x03, 0, 3, 0, 0, 0],
        ] as [[UInt8]])
    func aWrongFieldIsRefused(field: [UInt8]) {
        let failure = ProxyHeaderTranscript(of: Vector.block(Vector.ipv4 + field)).failure
        #expect(failure?.code == (field.starts(with: [3, 0, 4]) ? .wrongChecksum : .malformed))
    }

    @Test func aBlockHasAtMostTheBytesThatTheCallerAllows() throws {
        let small = Vector.block(Vector.ipv4 + [0xe0, 0, 1, 9])
        #expect(ProxyHeaderTranscript(of: small, maximumCount: small.count).header != nil)
        let refused = ProxyHeaderTranscript(of: small, maximumCount: small.count - 1)
        #expect(refused.failure?.code == .tooLong)
        #expect(refused.byteCount == 16)
        let local = ProxyHeaderTranscript(of: Vector.signature + [0x20, 0, 0xff, 0xff])
        #expect(local.failure?.code == .tooLong)
        let longest = Vector.signature + [0x20, 0, 0xff, 0xff] + Array(repeating: 1, count: 65535)
        #expect(ProxyHeader.parsed(longest, maximumCount: 1 << 20) == .complete(.local, consumedCount: 65551))
    }
}
