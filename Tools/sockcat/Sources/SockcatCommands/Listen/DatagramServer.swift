internal import AsyncSockets
internal import Glibc

/// A `listen` command over UDP or DTLS.
struct DatagramServer: Sendable {
    let address: ListenAddress
    let isEcho: Bool
    let choices: Listen
    let fresh: FreshCertificate?
    let reporter: Reporter

    func run() async throws {
        let tls = choices.tls.server.choices
        let settings = choices.transport.isSecure ? try tls.settings(fresh: fresh, isForDatagrams: true) : nil
        let listener = try address.listenForDatagrams(
            dtls: settings, maximumPeers: choices.service.maxConnections ?? 10_000,
            idleTimeout: choices.data.idleTimeout?.duration ?? .seconds(60), reporter)
        reporter.noteListening(on: listener.localAddresses, address, fresh)
        let output = try DescriptorWriter.standardOutput()
        try await withThrowingTaskGroup(of: Void.self) { group in
            if settings != nil, !tls.files.isEmpty {
                let report = ReloadReport(reporter)
                group.addTask {
                    try await listener.reloadTLS(from: tls.files, onError: report.failed) {
                        try tls.settings(fresh: fresh, isForDatagrams: true)
                    }
                }
            }
            // UDP has no end of a connection to wait for.
            try await listener.run(untilSignals: [SIGTERM, SIGINT], closeTimeout: .zero, onError: report) { socket in
                try await serve(socket, output)
            }
            group.cancelAll()
        }
    }

    private func serve(_ socket: AsyncUDPSocket, _ output: DescriptorWriter) async throws {
        if let session = socket.tlsSession { reporter.describe(session) }
        for try await datagram in socket.datagrams {
            if isEcho {
                try await socket.send(datagram.data)
            } else {
                try await output.write(datagram.data)
            }
        }
    }

    private func report(_ error: any Error, of socket: AsyncUDPSocket) {
        // UDP does not report that a peer is gone, so this is not a failure.
        if let error = error as? AsyncSocketError, error.code == .idleTimeout { return }
        reporter.note("\(socket.connectedAddress.text): \(Failure(error).message)")
    }
}
