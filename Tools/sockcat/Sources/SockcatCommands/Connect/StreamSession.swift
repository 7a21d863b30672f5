internal import AsyncSockets
internal import Glibc

/// A `connect` command over TCP or a Unix-domain socket.
struct StreamSession: Sendable {
    let endpoint: Endpoint
    let plan: TLSClientPlan?
    let startTLS: StartTLSName?
    let options: ConnectOptions
    let data: ExchangeOptions
    let reporter: Reporter

    func run() async throws {
        let socket = AsyncSocket()
        do {
            try await open(socket)
            try await StreamExchange(socket, data, reporter).run()
            try await socket.close()
        } catch {
            socket.disconnect()
            try? plan?.sessions?.save()
            throw error
        }
        try plan?.sessions?.save()
    }

    private func open(_ socket: AsyncSocket) async throws {
        let timeout = options.timeout.duration
        let plan = try await plan?.prepared(for: endpoint, within: timeout)
        let tls = startTLS == nil ? plan : nil
        switch endpoint {
        case .host(let host, let port):
            do {
                try await socket.connect(
                    to: host, port: port, proxy: options.proxy?.proxy, tls: tls?.settings, trust: tls?.trust, timeout: timeout)
            } catch let error as AsyncSocketError where error.isOfFirstHop {
                throw options.proxy.map { Failure(error).about("proxy \(Endpoint.host($0.proxy.host, port: $0.proxy.port))") }
                    ?? error
            }
        case .unix:
            guard options.proxy == nil else { throw Failure.usage("--proxy cannot connect to a Unix-domain socket") }
            guard let address = endpoint.unixAddress else { throw Failure.usage("\(endpoint) is not an address") }
            try await socket.connect(to: address, tls: tls?.settings, trust: tls?.trust, timeout: timeout)
        }
        let address = socket.connectedAddress.map { "\($0)" } ?? ""
        reporter.detail("connected to \(endpoint)\(address == "\(endpoint)" ? "" : " (\(address))")")
        if let startTLS, let plan {
            // The user's name, and not the name that has the TLSA records: XMPP sends it to the server.
            let host = self.plan?.settings.serverName ?? endpoint.hostName ?? "localhost"
            _ = try await startTLS.startTLS(on: socket, host: host, plan)
        }
        if let session = socket.tlsSession { reporter.describe(session) }
    }
}
