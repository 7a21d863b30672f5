internal import SocketBuffers
internal import SocketTLS

// Shared by connections and UDP sockets: waiting for a handshake, and exporting keys.

extension HandshakeWaiter {
    /// Returns when the handshake is complete. Runs `trust` if the handshake requires a trust decision.
    ///
    /// While `trust` runs, the deadline, a cancellation or the loss of the connection still aborts the wait.
    /// The decision is then cancelled and has no effect.
    ///
    /// - Parameter post: Passes events to the upgrade.
    nonisolated(nonsending) func session(
        _ operation: AsyncSocketError.Operation, _ limit: OperationLimit, from owner: any OperationOwner,
        _ trust: (@Sendable (PeerTrust) async throws -> Bool)?, post: @escaping @Sendable (UpgradeNews) -> Void
    ) async throws -> CopyOnWrite<TLSSession>? {
        var waiter = self
        var decision: TrustDecision?
        do {
            while true {
                switch try await waiter.value(from: owner) {
                case .secured(let session): return session
                case .asksTrust(let peer, let question):
                    waiter = HandshakeWaiter(operation, limit)
                    post(.awaited(by: waiter))
                    decision = TrustDecision(about: peer, trust) { post(.verdict($0, of: question)) }
                }
            }
        } catch {
            let reason = decision?.error ?? error
            decision?.cancel()
            throw reason
        }
    }
}

/// The decision whether to trust a peer. The program's closure runs in a separate task, so that a closure
/// that stays suspended cannot block the handshake. A closure that blocks the loop can.
private struct TrustDecision {
    private let task: Task<Void, Never>
    private let thrown = Locked<(any Error)?>(nil)

    /// - Parameter post: Called once, with the verdict, which is `false` if `trust` throws or is `nil`.
    init(
        about peer: PeerTrust, _ trust: (@Sendable (PeerTrust) async throws -> Bool)?, post: @escaping @Sendable (Bool) -> Void
    ) {
        task = Task(executorPreference: .preferredByCurrentTask) { [thrown] in
            do {
                post(try await trust?(peer) ?? false)
            } catch {
                thrown.withLock { $0 = error }
                post(false)
            }
        }
    }

    var error: (any Error)? { thrown.withLock { $0 } }

    func cancel() { task.cancel() }
}

extension KeyExporter {
    /// Passes the exporter of a secure connection to `body`, and throws if the connection is not secure.
    static func ask(
        _ exporter: KeyExporter?, _ operation: AsyncSocketError.Operation, _ body: (KeyExporter) throws(Failure) -> [UInt8]
    ) throws(AsyncSocketError) -> [UInt8] {
        guard let exporter else {
            throw .badConfiguration(operation, "the connection is not secure: wait for the TLS handshake to complete")
        }
        do throws(Failure) {
            return try body(exporter)
        } catch {
            switch error {
            case .ended: throw .badConfiguration(operation, "the connection is closed")
            case .badParameter(let complaint): throw .badParameter(operation, complaint)
            case .unavailable(let error): throw AsyncSocketError(error, operation: operation)
            }
        }
    }
}
