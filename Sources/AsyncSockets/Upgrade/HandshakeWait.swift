internal import Logging
internal import SocketBuffers
internal import SocketCore
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
            decision?.cancel(for: owner)
            throw reason
        }
    }
}

/// The decision whether to trust a peer. The program's closure runs in a separate task, off the event loops,
/// so that a closure that blocks or stays suspended delays neither the limits of the handshake nor other
/// connections.
private struct TrustDecision {
    private struct State {
        var error: (any Error)?
        var hasReturned = false
        /// Reports a closure that does not return after its cancellation.
        var alarm: Alarm?
    }

    private static let patience = 1.0
    /// The time of the next warning, because peers decide how many closures are called.
    private static let nextWarning = Locked(Deadline.now)

    private let task: Task<Void, Never>
    private let state = Locked(State())

    /// - Parameter post: Called once, with the verdict, which is `false` if `trust` throws or is `nil`.
    init(
        about peer: PeerTrust, _ trust: (@Sendable (PeerTrust) async throws -> Bool)?, post: @escaping @Sendable (Bool) -> Void
    ) {
        task = Task(executorPreference: .forDecisions) { [state] in
            var verdict = false
            do {
                verdict = try await trust?(peer) ?? false
            } catch {
                state.withLock { $0.error = error }
            }
            state.withLock { state in
                state.hasReturned = true
                return state.alarm.take()
            }?.stop()
            post(verdict)
        }
    }

    var error: (any Error)? { state.withLock { $0.error } }

    /// Returns whether a second has passed since the last warning.
    private static func mayWarn(at now: Deadline = .now) -> Bool {
        nextWarning.withLock { next in
            guard next <= now else { return false }
            next = Deadline(after: 1, from: now) ?? now
            return true
        }
    }

    /// Cancels the closure. If it is still running soon afterwards, a warning names the peer.
    func cancel(for owner: any OperationOwner) {
        task.cancel()
        let metadata = (owner as? any EventHandler)?.logMetadata
        state.withLock { [state] in
            guard !$0.hasReturned else { return }
            $0.alarm = Alarm(at: Deadline(after: Self.patience) ?? .now) {
                guard !state.withLock({ $0.hasReturned }), Self.mayWarn() else { return }
                socketLog.withLock { $0 }.warning(
                    "a trust closure has not returned, although it was cancelled: let CancellationError propagate",
                    metadata: metadata)
            }
        }
    }
}

extension Optional where Wrapped == any TaskExecutor {
    /// The executor for closures that decide about a peer: the one that the program has chosen for the
    /// current task, unless that is an event loop, because the closures could delay its other connections.
    fileprivate static var forDecisions: Self {
        let preferred = preferredByCurrentTask
        return preferred is SocketEventLoop ? nil : preferred
    }
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
