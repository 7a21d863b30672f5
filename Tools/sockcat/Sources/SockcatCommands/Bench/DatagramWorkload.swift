internal import AsyncSockets
internal import FoundationEssentials

/// Measures requests over DTLS. Each worker sends a datagram, receives the next datagram from the server,
/// and repeats. After a lost datagram, the operation fails when the time limit expires, and the worker starts
/// a new session.
struct DatagramWorkload: Sendable {
    let target: BenchTarget
    let request: Data

    func perform(_ worker: BenchWorker) async throws {
        try await target.withDatagrams { socket, _, _ in
            try await worker.loop { result in
                let start = ContinuousClock.now
                try await socket.send(request, timeout: target.timeout)
                let response = try await socket.receive(timeout: target.timeout)
                result.bytesSent += request.count
                result.bytesReceived += response.data.count
                return .completed(ContinuousClock.now - start)
            }
        }
    }
}

extension BenchTarget {
    /// Performs a DTLS handshake and calls `body` with the socket, the session and the duration of the
    /// handshake. Then notifies the server that the session is closed, so that it can release its memory.
    nonisolated(nonsending) func withDatagrams(
        _ body: nonisolated(nonsending) (AsyncUDPSocket, TLSSession, Duration) async throws -> Void
    ) async throws {
        guard let plan, case .host(let host, let port) = endpoint else {
            throw Failure.usage("\(endpoint) is not a UDP address", advice: "pass a host and a port")
        }
        try await AsyncUDPSocket.withConnection(
            to: host, port: port, timeout: timeout, configure: { $0.failsHandshakeOnDeliveryFailure = true }
        ) { socket in
            let start = ContinuousClock.now
            let session = try await socket.startDTLS(settings: plan.settings, trust: plan.trust)
            try await body(socket, session, ContinuousClock.now - start)
            try await socket.close()
        }
    }
}
