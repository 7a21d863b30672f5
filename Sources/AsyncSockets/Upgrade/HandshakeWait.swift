internal import SocketTLS

// Shared by connections and UDP sockets: waiting for a handshake, and asking for keys.

extension HandshakeWaiter {
    /// Waits for the end of a handshake, and has `trust` decide on the way.
    ///
    /// - Parameter post: Takes the verdict to the upgrade.
    nonisolated(nonsending) func session(
        _ operation: OperationKind, _ limit: OperationLimit, from owner: any OperationOwner,
        _ trust: (nonisolated(nonsending) (PeerTrust) async throws -> Bool)?, post: (UpgradeNews) -> Void
    ) async throws -> CopyOnWrite<TLSSession>? {
        var waiter = self
        while true {
            switch try await waiter.value(from: owner) {
            case .secured(let session): return session
            case .asksTrust(let peer, let question):
                let isAccepted: Bool
                do {
                    isAccepted = try await trust?(peer) ?? false
                } catch {
                    post(.verdict(false, of: question))
                    throw error
                }
                waiter = HandshakeWaiter(operation, limit)
                post(.verdictOf(waiter, isAccepted, of: question))
            }
        }
    }
}

extension KeyExporter {
    /// Asks the exporter of a connection, if it is secure.
    static func ask(
        _ exporter: KeyExporter?, _ operation: String, _ body: (KeyExporter) throws(Failure) -> [UInt8]
    ) throws(AsyncSocketError) -> [UInt8] {
        guard let exporter else {
            throw .badConfiguration(operation, "the connection is not secure: wait for the end of the handshake")
        }
        do throws(Failure) {
            return try body(exporter)
        } catch {
            switch error {
            case .ended: throw .badConfiguration(operation, "the connection has ended")
            case .badParameter(let complaint): throw .badParameter(operation, complaint)
            case .unavailable(let error): throw AsyncSocketError(error, operation: operation)
            }
        }
    }
}

/// A handshake that a task has begun, and waits for. It is small: a task keeps the memory that it once
/// needed.
struct AwaitedHandshake {
    let operation: OperationKind
    let waiter: HandshakeWaiter
    let limit: OperationLimit
    let connection: StreamConnection
    let socket: AsyncSocket

    /// Waits for the end, and has `trust` decide on the way.
    nonisolated(nonsending) func session(
        _ trust: (nonisolated(nonsending) (PeerTrust) async throws -> Bool)?
    ) async throws -> CopyOnWrite<TLSSession> {
        let session = try await waiter.session(operation, limit, from: connection, trust) { connection.post(.upgrading($0)) }
        if let session { return session }
        socket.disconnect()
        throw AsyncSocketError.badConfiguration(operation.rawValue, "the handshake ended without a session")
    }
}
