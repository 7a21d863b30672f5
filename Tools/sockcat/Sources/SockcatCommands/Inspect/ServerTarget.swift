internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// A server to inspect.
struct ServerTarget: Sendable, Equatable, CustomStringConvertible {
    var endpoint: Endpoint
    var startTLS: StartTLSName?
    /// Whether the server uses DTLS instead of TLS.
    var isDatagram = false
    /// The name that the certificate must have. If `nil`, it is the host of `endpoint`.
    var serverName: String?
    /// The record that named the server, if the user named a domain.
    var origin: ServerOrigin?

    var description: String {
        (isDatagram ? Self.datagrams : startTLS?.rawValue).map { "\(endpoint) (\($0))" } ?? "\(endpoint)"
    }

    /// The word for DTLS in a list of servers.
    static let datagrams = "dtls"

    /// The name that is expected in the certificate and sent by SNI.
    var expectedName: String? { serverName ?? endpoint.hostName }

    /// The domain that some STARTTLS protocols send to the server.
    var domain: String? { origin?.domain.description ?? expectedName }
}

/// A server or a file to inspect.
enum InspectionTarget: Sendable, Equatable {
    case server(ServerTarget)
    case file(String)
    /// Servers that were not found, and why.
    case unresolved(String, Failure)

    /// Parses "HOST PORT", "HOST:PORT", "unix:PATH", or the paths of files.
    static func targets(
        _ arguments: [String], _ startTLS: StartTLSName?, isDatagram: Bool = false, serverName: String?
    ) throws -> [InspectionTarget] {
        let server = { endpoint in
            InspectionTarget.server(
                ServerTarget(endpoint: endpoint, startTLS: startTLS, isDatagram: isDatagram, serverName: serverName))
        }
        if arguments.count == 2, !isFile(arguments[1]), isPort(arguments[1], after: arguments[0]) {
            let endpoint = try Endpoint.host(arguments[0], port: arguments[1])
            return [server(endpoint)]
        }
        if arguments.count == 2, !arguments.contains(where: { isFile($0) || $0.contains(":") }) {
            throw ServicePort.failure(arguments[1], from: 1)
        }
        return try arguments.map { argument in
            if isFile(argument) { return .file(argument) }
            guard argument.contains(":") else {
                throw Failure.usage(
                    "\"\(argument)\" is neither a file nor HOST:PORT", advice: "write HOST PORT, HOST:PORT or the path of a file")
            }
            return server(try Endpoint(argument))
        }
    }

    /// Whether two words are a host and its port.
    private static func isPort(_ word: String, after host: String) -> Bool {
        Int(word) != nil || ServicePort.number(word) != nil && (try? Endpoint(host)) == nil
    }

    private static func isFile(_ argument: String) -> Bool {
        argument == "-" || !argument.hasPrefix("unix:") && FileManager.default.fileExists(atPath: argument)
    }

    /// Parses a file with a server on each line: "HOST PORT", "HOST:PORT" or "unix:PATH", optionally followed
    /// by the protocol for STARTTLS or by "dtls". "#" starts a comment.
    static func targets(inList text: String, named path: String) throws -> [InspectionTarget] {
        var targets: [InspectionTarget] = []
        for (index, line) in TextLines(text).enumerated() {
            let words = line.prefix { $0 != "#" }.split { $0.isWhitespace }.map(String.init)
            if words.isEmpty { continue }
            do {
                targets.append(.server(try server(words)))
            } catch let failure as Failure {
                throw Failure.usage("line \(index + 1) of \"\(path)\": \(failure.message)", advice: failure.advice)
            }
        }
        guard !targets.isEmpty else {
            throw Failure.usage("\"\(path)\" contains no servers", advice: "write HOST:PORT on each line")
        }
        return targets
    }

    private static func server(_ words: [String]) throws -> ServerTarget {
        let hasPort = words.count > 1 && isPort(words[1], after: words[0])
        if hasPort, words.count == 2, Int(words[1]) == nil, StartTLSName(argument: words[1]) != nil {
            throw Failure.usage(
                "\"\(words[1])\" may be the port or the protocol", advice: "write HOST:PORT PROTOCOL, or the number of the port")
        }
        let endpoint = hasPort ? try Endpoint.host(words[0], port: words[1]) : try Endpoint(words[0])
        let rest = words.dropFirst(hasPort ? 2 : 1)
        guard let name = rest.first else { return ServerTarget(endpoint: endpoint) }
        if Array(rest) == [ServerTarget.datagrams] { return ServerTarget(endpoint: endpoint, isDatagram: true) }
        guard rest.count == 1, let startTLS = StartTLSName(argument: name) else {
            throw Failure.usage(
                "unknown STARTTLS protocol: \"\(rest.joined(separator: " "))\"",
                advice:
                    "choose from \((StartTLSName.allCases.map(\.rawValue) + [ServerTarget.datagrams]).joined(separator: ", "))")
        }
        return ServerTarget(endpoint: endpoint, startTLS: startTLS)
    }
}
