import SocketCore

/// The results of a parser for bytes that arrive one at a time.
struct ProxyHeaderTranscript {
    /// The final result.
    var answer = ProxyHeader.ParsingAnswer.incomplete(minimumCount: 1)
    /// The number of bytes needed for it.
    var byteCount = 0
    /// False if an earlier result overstated the length of the header.
    var askedForLittleEnough = true

    /// Parses each prefix of `bytes`, including the empty one.
    init(of bytes: [UInt8], maximumCount: Int = ProxyHeader.defaultMaximumCount) {
        var minimums: [Int] = []
        for count in 0...bytes.count {
            answer = ProxyHeader.parsed(Array(bytes.prefix(count)), maximumCount: maximumCount)
            byteCount = count
            guard case .incomplete(let minimumCount) = answer else { break }
            minimums.append(minimumCount)
            if minimumCount <= count { askedForLittleEnough = false }
        }
        if case .complete(_, let consumedCount) = answer, minimums.contains(where: { $0 > consumedCount }) {
            askedForLittleEnough = false
        }
    }

    var header: ProxyHeader? {
        if case .complete(let header, byteCount) = answer { header } else { nil }
    }

    var failure: ProxyHeaderError? {
        if case .failed(let error) = answer { error } else { nil }
    }
}

extension ProxyHeader {
    /// Parses a copy of the bytes in its own memory, so that a sanitizer detects out-of-bounds reads.
    static func parsed(_ bytes: [UInt8], maximumCount: Int = defaultMaximumCount) -> ParsingAnswer {
        bytes.withUnsafeBytes { parse($0, maximumCount: maximumCount) }
    }

    static func tcp(_ source: String, _ sourcePort: UInt16, _ destination: String, _ destinationPort: UInt16) throws
        -> ProxyHeader
    {
        guard let source = SocketEndpoint(literal: source, port: sourcePort),
            let destination = SocketEndpoint(literal: destination, port: destinationPort)
        else { throw ProxyHeaderError(.notEncodable, "no address") }
        return ProxyHeader(source: source, destination: destination)
    }

    /// Returns a header with everything that version 2 supports.
    static func full() throws -> ProxyHeader {
        var header = try tcp("192.0.2.1", 56324, "198.51.100.2", 443)
        header.applicationProtocol = Array("h2")
        header.authority = "host.example"
        header.uniqueID = [0, 1, 0xfe, 0xff]
        header.networkNamespace = "blue"
        header.hasChecksum = true
        header.otherFields = [.init(type: 0xe0, value: []), .init(type: 0xe0, value: [1, 2, 3])]
        var tls = ClientTLS(flags: [.usesTLS, .presentedCertificate], verifyResult: 0)
        tls.version = "TLSv1.3"
        tls.commonName = "Zoë"
        tls.cipherSuite = "TLS_AES_256_GCM_SHA384"
        tls.signatureAlgorithm = "RSA-SHA256"
        tls.keyAlgorithm = "RSA2048"
        tls.otherFields = [.init(type: 0x26, value: Array("x25519"))]
        header.clientTLS = tls
        return header
    }
}

/// Version 2 headers built according to the specification.
enum ProxyHeaderVector {
    static let signature: [UInt8] = [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a]
    /// 192.0.2.1:56324 to 198.51.100.2:443.
    static let ipv4: [UInt8] = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb]

    /// A header for TCP over IPv4.
    static func block(_ rest: [UInt8]) -> [UInt8] {
        block(0x21, 0x11, rest)
    }

    /// - Parameters:
    ///   - command: Version and command.
    ///   - kind: Family and transport.
    static func block(_ command: UInt8, _ kind: UInt8, _ rest: [UInt8]) -> [UInt8] {
        signature + [command, kind, UInt8(rest.count >> 8), UInt8(rest.count & 0xff)] + rest
    }

    /// A field of this type.
    static func field(_ type: UInt8, _ text: String) -> [UInt8] {
        [type, 0, UInt8(text.utf8.count)] + text.utf8
    }
}
