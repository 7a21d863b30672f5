@testable import AsyncSockets
@testable import SocketTLS

extension FuzzTarget {
    /// ClientHellos before the handshake, compared with what OpenSSL reads from the same bytes.
    static let clientHello = FuzzTarget(name: "client-hello", maximumLength: 8192) { input in
        let bytes = Array(input.rest)
        let whole = parse(bytes)
        if case .complete(let hello, let length) = whole {
            try require(length <= bytes.count, "more bytes are consumed than there are")
            try requireIncompletePrefixes(of: length) { count in
                if case .incomplete(let minimum) = parse(Array(bytes.prefix(count))) { minimum } else { nil }
            }
            try require(hello.preSharedKeyIdentities.count <= 8, "too many identities")
            try HelloObserver.shared.check(hello, bytes)
        }
        if let message = bytes.dropFirst(5).first.map({ _ in Array(bytes.dropFirst(5)) }) {
            message.withUnsafeBytes { message in
                for hasCookie in [false, true] {
                    _ = ClientHelloMessage(message, hasCookie: hasCookie).excess
                    _ = TLSClientHello(message, hasCookie: hasCookie)
                }
            }
        }
    }

    private enum Parsed {
        case complete(TLSClientHello, length: Int)
        case incomplete(Int)
        case failed
    }

    private static func parse(_ bytes: [UInt8]) -> Parsed {
        switch try? TLSClientHello.parse(bytes.span.bytes) {
        case .complete(let hello, let length): .complete(hello, length: length)
        case .incomplete(let minimum): .incomplete(minimum)
        case nil: .failed
        }
    }

    /// The messages of a server or client that the library reads before or after OpenSSL.
    static let handshakeMessages = FuzzTarget(name: "handshake-messages", maximumLength: 16_384) { input in
        var input = input
        let kind = input.byte() % 6
        let limit = 1 + Int(input.byte() % 16)
        let bytes = input.all()
        switch kind {
        case 0, 1:
            try bytes.withUnsafeBytes { bytes in
                let message = CertificateMessage(bytes, isTLS13: kind == 0)
                if let start = message.startOfFirst(whenMoreThan: limit) {
                    try require(start <= bytes.count, "the first certificate starts after the end")
                }
                _ = message.describesCurve
            }
        case 2:
            try bytes.withUnsafeBytes { bytes in
                // The library overwrites the second byte of the extension's type.
                if let place = EncryptedExtensions(bytes).placeOfEarlyData {
                    try require(place + 1 < bytes.count, "the extension starts after the end")
                }
            }
        case 3:
            var output = bytes
            _ = AlertRecord.replace(.internalError, by: .badCertificate, atTheEndOf: &output)
            try require(output.count == bytes.count, "the length changes")
        case 4:
            let whole = TLSProbe.reply(in: bytes)
            // A decision does not change when more bytes arrive.
            if let early = TLSProbe.reply(in: Array(bytes.prefix(limit * 8))) {
                try require(early == whole, "the reply \(early) becomes \(String(describing: whole))")
            }
        default:
            let list = PreSharedKeyList(bytes)
            try require(list.identities.count <= PreSharedKeyList.limit, "too many identities")
            try require(list.byteCountOfBinders <= bytes.count, "the binders are longer than the message")
        }
    }
}
