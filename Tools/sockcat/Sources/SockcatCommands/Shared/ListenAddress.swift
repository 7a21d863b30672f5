internal import AsyncSockets
internal import Logging

/// Where a server listens, on the command line: "PORT", "ADDRESS:PORT", "INTERFACE:PORT", "unix:PATH" or
/// "unix:@NAME".
struct ListenAddress: Equatable, Sendable {
    enum Place: Equatable, Sendable {
        case port(UInt16, interface: String?)
        case unix(SocketEndpoint)
    }

    let place: Place

    init(_ text: String) throws {
        if text.hasPrefix("unix:"), let address = try Endpoint(text).unixAddress {
            place = .unix(address)
            return
        }
        let colon = text.lastIndex(of: ":")
        let number = colon.map { String(text[text.index(after: $0)...]) } ?? text
        guard let port = UInt16(number) else {
            throw Failure.usage("\"\(number)\" is not a port", advice: "pass a number from 0 to 65535")
        }
        let name = colon.map { String(text[..<$0]) }
        let isBracketed = name?.hasPrefix("[") == true && name?.hasSuffix("]") == true
        place = .port(port, interface: isBracketed ? name.map { String($0.dropFirst().dropLast()) } : name)
    }

    var isUnix: Bool { if case .unix = place { true } else { false } }

    /// Starts to listen, or continues with sockets of another process.
    func listen(
        inherited: [InheritedDescriptor] = [], tls: TLSServerSettings?, proxyProtocol: SocketListener.ProxyProtocol? = nil,
        maximumConnections: Int,
        _ reporter: Reporter, configure change: (AsyncSocket) -> Void = { _ in }
    ) throws -> SocketListener {
        let configure = { (model: AsyncSocket) in
            model.logger.logLevel = reporter.libraryLevel
            change(model)
        }
        if !inherited.isEmpty {
            return try SocketListener(
                inherited: inherited, tls: tls, proxyProtocol: proxyProtocol, maximumConnections: maximumConnections,
                configure: configure)
        }
        switch place {
        case .port(let port, let interface):
            return try SocketListener(
                port: port, interface: interface, tls: tls, proxyProtocol: proxyProtocol,
                maximumConnections: maximumConnections, configure: configure)
        case .unix(let address):
            return try SocketListener(
                address: address, tls: tls, proxyProtocol: proxyProtocol, maximumConnections: maximumConnections,
                configure: configure)
        }
    }

    /// Starts to listen for datagrams.
    func listenForDatagrams(dtls: TLSServerSettings?, maximumPeers: Int, idleTimeout: Duration?, _ reporter: Reporter) throws
        -> DatagramListener
    {
        guard case .port(let port, let interface) = place else {
            throw Failure.usage("UDP requires a port", advice: "pass PORT or ADDRESS:PORT")
        }
        return try DatagramListener(
            port: port, interface: interface, dtls: dtls, maximumPeers: maximumPeers, idleTimeout: idleTimeout,
            configure: { $0.logger.logLevel = reporter.libraryLevel })
    }
}

extension Reporter {
    /// The level of the library's own log. The commands print what happens to each connection.
    fileprivate var libraryLevel: Logger.Level {
        switch level {
        case .errors: .critical
        case .normal: .warning
        case .verbose: .info
        }
    }
}

extension [SocketEndpoint] {
    /// The addresses for messages, such as "0.0.0.0:80 and [::]:80".
    var text: String { isEmpty ? "an unknown address" : map { "\($0)" }.joined(separator: " and ") }
}

extension SocketEndpoint? {
    /// The address for messages.
    var text: String { map { "\($0)" } ?? "an unknown address" }
}
