internal import AsyncSockets
internal import Logging

/// Where a server listens, on the command line: "PORT", "ADDRESS:PORT", "INTERFACE:PORT", "unix:PATH",
/// "unix:@NAME", "systemd" or "systemd:NAME".
struct ListenAddress: Equatable, Sendable {
    enum Place: Equatable, Sendable {
        case port(UInt16, interface: String?)
        case unix(SocketEndpoint)
        /// The sockets with this name that a service manager passed, or all if the name is `nil`.
        case passed(name: String?)
    }

    let place: Place

    init(_ text: String) throws {
        if text.hasPrefix("unix:"), let address = try Endpoint(text).unixAddress {
            place = .unix(address)
            return
        }
        if text == "systemd" || text.hasPrefix("systemd:") {
            let name = text == "systemd" ? nil : String(text.dropFirst(8))
            guard name != "" else {
                throw Failure.usage(
                    "\"systemd:\" has no name", advice: "write systemd:NAME with FileDescriptorName=NAME, or systemd")
            }
            place = .passed(name: name)
            return
        }
        let colon = text.lastIndex(of: ":")
        let number = colon.map { String(text[text.index(after: $0)...]) } ?? text
        guard let port = ServicePort.number(number) else { throw ServicePort.failure(number, from: 0) }
        let name = colon.map { String(text[..<$0]) }
        let isBracketed = name?.hasPrefix("[") == true && name?.hasSuffix("]") == true
        place = .port(port, interface: isBracketed ? name.map { String($0.dropFirst().dropLast()) } : name)
    }

    var isUnix: Bool { if case .unix = place { true } else { false } }

    /// Whether the server listens on each interface because the user named none.
    var isOpen: Bool { if case .port(_, let interface) = place { interface ?? "" == "" } else { false } }

    /// The sockets of the service manager, or an empty array if the server opens its own.
    private func passedSockets() throws -> [InheritedDescriptor] {
        guard case .passed(let name) = place else { return [] }
        let sockets: [InheritedDescriptor]
        do {
            sockets = try name.map { try InheritedDescriptor.claim(named: $0) } ?? InheritedDescriptor.claimAll()
        } catch let error as InheritedDescriptorError {
            throw Failure("the sockets of the service manager: \(error.message)")
        }
        guard !sockets.isEmpty else {
            throw Failure(
                "the service manager passed no socket\(name.map { " with the name \"\($0)\"" } ?? "")",
                advice: "start this command from a socket unit (systemd.socket(5)), or pass a port")
        }
        return sockets
    }

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
        let sockets = inherited.isEmpty ? try passedSockets() : inherited
        if !sockets.isEmpty {
            return try SocketListener(
                inherited: sockets, tls: tls, proxyProtocol: proxyProtocol, maximumConnections: maximumConnections,
                configure: configure)
        }
        switch place {
        case .passed: throw Failure("the service manager passed no socket")
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
        let sockets = try passedSockets()
        if !sockets.isEmpty {
            return try DatagramListener(
                inherited: sockets, dtls: dtls, maximumPeers: maximumPeers, idleTimeout: idleTimeout,
                configure: { $0.logger.logLevel = reporter.libraryLevel })
        }
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
