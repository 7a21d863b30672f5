internal import ArgumentParser
internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// A duration on the command line: "5", "1.5s", "500ms", "2m" or "1h".
struct DurationArgument: ExpressibleByArgument, Equatable, Sendable, CustomStringConvertible {
    let duration: Duration
    let description: String

    private static let units: [(suffix: String, seconds: Double)] = [("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600)]

    init?(argument: String) {
        let unit = Self.units.first { argument.hasSuffix($0.suffix) } ?? ("", 1)
        guard let count = Double(argument.dropLast(unit.suffix.count)), count > 0, count * unit.seconds <= 1e9 else { return nil }
        duration = .seconds(count * unit.seconds)
        description = argument
    }

    init(seconds: Int) {
        (duration, description) = (.seconds(seconds), "\(seconds)s")
    }
}

/// A proxy on the command line: "socks5://[USER:PASSWORD@]HOST[:PORT]" or the same with "http".
struct ProxyArgument: ExpressibleByArgument, Sendable {
    let proxy: SocketProxy

    init?(argument: String) {
        guard let parts = URLComponents(string: argument), let host = parts.host, !host.isEmpty, ["", "/"].contains(parts.path)
        else { return nil }
        let credentials = parts.user.map { SocketProxy.Credentials(username: $0, password: parts.password ?? "") }
        let name = host.hasPrefix("[") && host.hasSuffix("]") ? String(host.dropFirst().dropLast()) : host
        guard let port = UInt16(exactly: parts.port ?? (parts.scheme == "http" ? 8080 : 1080)) else { return nil }
        switch parts.scheme {
        case "socks5": proxy = .socks5(host: name, port: port, credentials: credentials)
        case "http": proxy = .http(host: name, port: port, credentials: credentials)
        default: return nil
        }
    }
}

/// A SHA-256 digest of a public key on the command line: 64 hexadecimal digits, with or without colons, or
/// base64 after "sha256//", as curl accepts it.
struct PinArgument: ExpressibleByArgument, Sendable, Equatable {
    let digest: [UInt8]

    private static let prefix = "sha256//"

    /// The pin of a certificate's key, in the form that `--pin` and curl accept.
    static func text(of certificate: TLSCertificate) -> String {
        prefix + Data(certificate.publicKeySHA256).base64EncodedString()
    }

    init?(argument: String) {
        let bytes =
            argument.hasPrefix(Self.prefix)
            ? Data(base64Encoded: String(argument.dropFirst(Self.prefix.count))).map { Array($0) } : Hexadecimal.bytes(argument)
        guard let bytes, bytes.count == 32 else { return nil }
        digest = bytes
    }
}

enum Hexadecimal {
    /// Returns the bytes of hexadecimal text. Colons between bytes are ignored. Returns `nil` for other text.
    static func bytes(_ text: String) -> [UInt8]? {
        let digits = text.filter { $0 != ":" }.map(\.hexDigitValue)
        guard digits.count.isMultiple(of: 2), !digits.contains(nil) else { return nil }
        let values = digits.compactMap(\.self)
        return stride(from: 0, to: values.count, by: 2).map { UInt8(values[$0] << 4 | values[$0 + 1]) }
    }

    static func text(_ bytes: some Sequence<UInt8>, separator: String = "") -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined(separator: separator)
    }
}
