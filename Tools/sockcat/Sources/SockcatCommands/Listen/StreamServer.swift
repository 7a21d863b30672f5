internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc
internal import Synchronization

/// A `listen` command over TCP or a Unix-domain socket.
struct StreamServer: Sendable {
    enum Mode: Equatable, Sendable {
        /// Connects one client with standard input and output.
        case exchange
        case echo
        case print
        case exec(String)
        /// Replies to mail clients.
        case mail
    }

    /// A command has several threads while it runs.
    private static let maximumCommands = 50

    let address: ListenAddress
    let mode: Mode
    let choices: Listen
    let fresh: FreshCertificate?
    let reporter: Reporter

    func run() async throws {
        let settings =
            choices.transport.isSecure ? try ReloadingSettings(choices.tls.server.choices, fresh: fresh, reporter) : nil
        let listener = try address.listen(
            tls: choices.transport.tls ? settings?.current() : nil, maximumConnections: maximumConnections, reporter)
        reporter.noteListening(on: listener.localAddresses, address, fresh)
        if mode == .exchange {
            try await serveOne(listener, settings)
        } else {
            try await serveMany(listener, settings)
        }
    }

    private var maximumConnections: Int {
        switch mode {
        case .exchange: 1
        case .exec: choices.service.maxConnections ?? Self.maximumCommands
        case .echo, .print, .mail: choices.service.maxConnections ?? 10_000
        }
    }

    // MARK: - One client

    private func serveOne(_ listener: SocketListener, _ settings: ReloadingSettings?) async throws {
        Interruption.exitsImmediately()
        let outcome = Mutex<Result<Void, any Error>?>(nil)
        try await listener.run(onError: report) { socket in
            try await upgrade(socket, settings)
            let result: Result<Void, any Error>
            do {
                result = .success(try await StreamExchange(socket, choices.data, reporter).run())
            } catch {
                // The client must not mistake a failure for the end of the data.
                socket.disconnectWithReset()
                result = .failure(error)
            }
            outcome.withLock { $0 = $0 ?? result }
            listener.beginClosing()
        }
        try outcome.withLock(\.self)?.get()
    }

    // MARK: - Any number of clients

    private func serveMany(_ listener: SocketListener, _ settings: ReloadingSettings?) async throws {
        let output = try DescriptorWriter.standardOutput()
        let failure = Mutex<(any Error)?>(nil)
        try await withThrowingTaskGroup(of: Void.self) { group in
            if choices.transport.tls { group.addTask { try await reload(listener) } }
            try await listener.run(
                untilSignals: [SIGTERM, SIGINT], closeTimeout: choices.service.grace.duration,
                idleTimeout: idleTimeout, onError: report
            ) { socket in
                let host = try await upgrade(socket, settings)
                do {
                    try await serve(socket, output, host)
                } catch {
                    // The client must not mistake a failure for the end of the data.
                    socket.disconnectWithReset()
                    guard let error = error as? Failure, error.status == .outputClosed || error.status == .fileFailed else {
                        throw error
                    }
                    // Without its output, the command is useless.
                    failure.withLock { $0 = error }
                    listener.beginClosing(timeout: .zero)
                }
            }
            group.cancelAll()
        }
        if let failure = failure.withLock(\.self) { throw failure }
    }

    /// A mail client that is silent would otherwise keep its connection forever.
    private var idleTimeout: Duration? {
        choices.data.idleTimeout?.duration ?? (mode == .mail ? MailService.idleTimeout : nil)
    }

    private func serve(_ socket: AsyncSocket, _ output: DescriptorWriter, _ host: String) async throws {
        switch mode {
        case .exchange, .print: for try await bytes in socket.chunks { try await output.write(bytes) }
        case .echo: for try await bytes in socket.chunks { try await socket.write(bytes) }
        case .exec(let command): try await CommandSession(socket: socket, command: command, reporter: reporter).run()
        case .mail:
            guard let session = choices.transport.starttls?.mailSession(host: host) else { return }
            try await MailService(socket: socket, output: output, lineTimeout: idleTimeout).run(session)
        }
    }

    private func reload(_ listener: SocketListener) async throws {
        guard !choices.tls.server.choices.files.isEmpty else { return }
        let report = ReloadReport(reporter)
        try await listener.reloadTLS(from: choices.tls.server.choices.files, onError: report.failed) {
            let settings = try choices.tls.server.choices.settings(fresh: fresh)
            report.succeeded()
            return settings
        }
    }

    // MARK: - Each client

    /// Upgrades a connection if the options require it. Returns the server's own name, which the client
    /// receives in a greeting.
    @discardableResult
    private func upgrade(_ socket: AsyncSocket, _ settings: ReloadingSettings?) async throws -> String {
        reporter.detail("\(socket.connectedAddress.text) connected")
        let current = settings?.current()
        let host = choices.tls.name.first ?? current?.certificateName ?? "localhost"
        if let startTLS = choices.transport.starttls, let current {
            _ = try await startTLS.acceptStartTLS(on: socket, host: host, current)
        }
        if let session = socket.tlsSession { reporter.describe(session) }
        return host
    }

    private func report(_ error: any Error, of socket: AsyncSocket) {
        reporter.note("\(socket.connectedAddress.text): \(Failure(error).message)")
    }
}

extension TLSServerSettings {
    /// The first name in the certificate that is a host name and not a wildcard.
    fileprivate var certificateName: String? {
        identity?.certificateChain.first?.dnsNames.first { name in
            !name.isEmpty
                && name.utf8.allSatisfy {
                    (48...57).contains($0) || (65...90).contains($0) || (97...122).contains($0) || "-._".utf8.contains($0)
                }
        }
    }
}
