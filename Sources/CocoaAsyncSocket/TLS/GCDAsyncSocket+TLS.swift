internal import AsyncSockets
internal import Foundation
internal import SocketBuffers

extension GCDAsyncSocket {
    /// Starts TLS with the settings in a dictionary. Unusable settings close the connection, so that no data
    /// is sent in plaintext.
    func upgrade(_ dictionary: [String: NSObject]) {
        if core.isDisconnected {
            // Another thread may have marked the socket as disconnected without having closed it yet. This
            // call ensures that no later write is sent.
            core.disconnect()
            return note("startTLS was ignored: the socket is disconnected")
        }
        guard claimTLS() else { return note("startTLS was ignored: it has already been called") }
        do throws(TLSDictionary.Refusal) {
            let host = facts.withLock { $0.host }
            let (settings, evaluation) = try TLSDictionary.read(dictionary, host: host)
            facts.withLock { $0.trust = evaluation }
            begin(settings)
        } catch {
            fail(error.message)
        }
    }

    /// Returns false if TLS was already started on this connection.
    private func claimTLS() -> Bool {
        facts.withLock { facts in
            defer { facts.hasBegunTLS = true }
            return !facts.hasBegunTLS
        }
    }

    private func begin(_ settings: TLSDictionary.Settings) {
        do throws(AsyncSocketError) {
            switch settings {
            case .client(let settings): try core.beginTLS(settings: settings)
            case .server(let settings): try core.beginTLS(settings: settings)
            }
        } catch {
            // If the core rejected the settings, it has closed the connection. For other errors, the
            // connection is already closing.
            note("startTLS failed: \(error)")
        }
    }

    private func fail(_ message: String) {
        core.fail(AsyncSocketError(.tls, fault: .caller, operation: .startTLS, message: message))
    }

    /// Closes the connection because the delegate implements neither of the two methods that evaluate a peer.
    func refuseUnaskedTrust() {
        fail(
            "GCDAsyncSocketManuallyEvaluateTrust specified in tlsSettings, "
                + "but delegate doesn't implement socket:shouldTrustPeer:")
    }
}
