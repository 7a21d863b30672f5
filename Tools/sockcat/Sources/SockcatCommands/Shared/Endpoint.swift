internal import ArgumentParser
internal import AsyncSockets

/// The address of a peer on the command line: "HOST:PORT", "[IPv6]:PORT", "unix:PATH" or "unix:@NAME".
enum Endpoint: Equatable, Sendable, CustomStringConvertible {
    case host(String, port: UInt16)
    /// A path, or an abstract name after "@".
    case unix(String)

    init(_ text: String) throws {
        if text.hasPrefix("unix:") {
            self = try .unixSocket(String(text.dropFirst(5)))
        } else {
            guard let colon = text.lastIndex(of: ":") else {
                throw Failure.usage("\"\(text)\" has no port", advice: "write HOST:PORT or unix:PATH")
            }
            let host = text[..<colon]
            guard !host.contains(":") || host.hasPrefix("[") else {
                throw Failure.usage("\"\(text)\" has too many colons", advice: "write an IPv6 address in brackets: [::1]:PORT")
            }
            self = try .host(String(host), port: String(text[text.index(after: colon)...]))
        }
    }

    /// - Parameters:
    ///   - host: A name, or an address with or without brackets.
    ///   - port: See `ServicePort`.
    static func host(_ host: String, port: String) throws -> Endpoint {
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]")
        let name = isBracketed ? String(host.dropFirst().dropLast()) : host
        guard !name.isEmpty else { throw Failure.usage("the host is empty", advice: "write HOST:PORT") }
        guard let number = ServicePort.number(port), number > 0 else { throw ServicePort.failure(port, from: 1) }
        return .host(name, port: number)
    }

    static func unixSocket(_ path: String) throws -> Endpoint {
        let isAbstract = path.hasPrefix("@")
        let name = isAbstract ? String(path.dropFirst()) : path
        let address = isAbstract ? SocketEndpoint(abstractName: name) : SocketEndpoint(unixPath: name)
        guard address != nil else {
            throw Failure.usage(
                "\"\(path)\" is not the path of a Unix-domain socket",
                advice: "a path has 1 to \(SocketEndpoint.maximumUnixPathBytes) bytes")
        }
        return .unix(path)
    }

    /// The host, which a TLS client expects in the server's certificate.
    var hostName: String? {
        if case .host(let name, _) = self { name } else { nil }
    }

    /// The address of a Unix-domain socket.
    var unixAddress: SocketEndpoint? {
        guard case .unix(let path) = self else { return nil }
        return path.hasPrefix("@") ? SocketEndpoint(abstractName: String(path.dropFirst())) : SocketEndpoint(unixPath: path)
    }

    var description: String {
        switch self {
        case .host(let name, let port): name.contains(":") ? "[\(name)]:\(port)" : "\(name):\(port)"
        case .unix(let path): "unix:\(path)"
        }
    }
}
