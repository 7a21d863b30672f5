internal import AsyncSockets
internal import Glibc

/// Accepts connections and forwards each of them.
struct RelayServer: Sendable {
    /// How often the files of a certificate are checked for changes.
    private static var reloadInterval: Duration { .seconds(1) }

    let address: ListenAddress
    let proxyProtocol: SocketListener.ProxyProtocol?
    let choices: TLSServerChoices
    /// The settings for TLS from the first byte.
    let settings: ReloadingSettings?
    let generation: RelayGeneration
    let link: RelayLink

    private var reporter: Reporter { link.reporter }

    func run() async throws {
        let listener = try address.listen(
            inherited: generation.relay, tls: settings?.current(), proxyProtocol: proxyProtocol,
            maximumConnections: link.limits.maxConnections, reporter, configure: { link.limits.apply(to: $0) })
        link.limits.apply(to: listener)
        let status = try generation.status.map {
            try RelayStatus($0, inherited: generation.inheritedStatus, of: listener, reporter)
        }
        try await generation.takeOver(listener, status)
        reporter.note("listening on \(listener.localAddresses.text)")
        try await withThrowingTaskGroup(of: Void.self) { group in
            if settings != nil { group.addTask { try await reload(listener) } }
            if let status { group.addTask { try await status.run() } }
            async let offer: Void = generation.untilReplaced(grace: link.limits.grace.duration, reporter)
            try await listener.run(
                untilSignals: [SIGTERM, SIGINT], closeTimeout: link.limits.grace.duration, onError: report
            ) { try await link.serve($0) }
            group.cancelAll()
            try await offer
        }
        reporter.detail("all connections are closed")
    }

    private func reload(_ listener: SocketListener) async throws {
        guard !choices.files.isEmpty else { return }
        let report = ReloadReport(reporter)
        try await listener.reloadTLS(from: choices.files, every: Self.reloadInterval, onError: report.failed) {
            let settings = try choices.settings()
            report.succeeded()
            return settings
        }
    }

    private func report(_ error: any Error, of socket: AsyncSocket) {
        // Only the client can fail before its connection is forwarded.
        let message: PrintableText =
            (error as? RelayFailure).map { "\($0.message)" } ?? "client \(socket.originalAddress.text): \(Failure(error).message)"
        reporter.note(message)
    }
}
