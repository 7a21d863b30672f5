internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

extension TLSRequest {
    /// Prepares an upgrade on the caller's thread and queues it on the connection. If the connection has
    /// already closed, its closing reports the reason.
    ///
    /// - Parameters:
    ///   - waiter: The waiter of a task. `nil` for a delegate.
    ///   - decidesTrust: Whether the waiter decides whether to trust the peer's certificate.
    ///   - waitsForNoTask: Whether the upgrade fails if another task has a pending read.
    ///   - makeDialogue: Returns the dialogue before the handshake, if any.
    static func post(
        _ settings: TLSSettingValues, to connection: StreamConnection?,
        waiter: (any OperationWaiter<HandshakeNews>)? = nil, decidesTrust: Bool = false, waitsForNoTask: Bool = false,
        _ makeDialogue: DialogueRequest.Maker = { nil }
    ) throws(AsyncSocketError) {
        guard let connection else { throw AsyncSocket.notInUse(.startTLS) }
        // A waiter is completed in the connection's turn, where the reason for the close is known.
        guard try claimUpgrade(of: connection, isTask: waiter != nil) || waiter != nil else { return }
        do throws(AsyncSocketError) {
            let claims = connection.record.withLock { $0.claims }
            let settings = settings.expecting(claims.host)
            let request = TLSRequest(
                settings: settings, context: try makeContext(for: settings), waiter: waiter, waiterDecidesTrust: decidesTrust,
                waitsForNoTask: waitsForNoTask, endpoint: claims.endpoint?.value, dialogue: try makeDialogue())
            connection.post(.startTLS(request))
        } catch {
            connection.post(.fail(error))
            throw error
        }
    }

    private static func makeContext(for settings: TLSSettingValues) throws(AsyncSocketError) -> TLSContext {
        do throws(TLSError) {
            return try TLSContext.context(for: settings)
        } catch {
            throw AsyncSocketError(error, operation: .startTLS)
        }
    }

    /// Returns `false` if the connection has closed. If a task starts an upgrade after this side has closed
    /// its write stream, the connection fails: a task that ignores the error must not continue to read
    /// plaintext.
    private static func claimUpgrade(of connection: StreamConnection, isTask: Bool) throws(AsyncSocketError) -> Bool {
        switch connection.record.withLock({ $0.claimUpgrade() }) {
        case .granted: return true
        case .over: return false
        case .repeated: throw .badConfiguration(.startTLS, "startTLS has already been called on this connection")
        case .closing(let intent):
            // The closing thread may have recorded its close but not posted it yet. Post it here too, so that
            // no later write is sent first.
            connection.post(intent.map { .close($0) } ?? .closeWriteStream)
            if isTask, intent == nil { connection.post(.fail(.closing(.startTLS))) }
            throw .closing(.startTLS)
        }
    }
}
