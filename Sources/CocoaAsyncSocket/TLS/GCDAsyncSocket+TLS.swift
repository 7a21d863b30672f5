internal import AsyncSockets
internal import Foundation
internal import SocketBuffers

extension GCDAsyncSocket {
    /// Begins TLS by a dictionary. Settings that cannot be used end the connection: nothing leaves in
    /// plaintext.
    func upgrade(_ dictionary: [String: NSObject]) {
        if core.isDisconnected {
            // The thread that does it may only have said so yet: no write may leave before that.
            core.disconnect()
            return note("a startTLS was dropped: the socket is disconnected")
        }
        guard claimTLS() else { return note("a startTLS was dropped") }
        do throws(TLSDictionary.Refusal) {
            let host = facts.withLock { $0.host }
            let (settings, evaluation) = try TLSDictionary.read(dictionary, host: host)
            facts.withLock { $0.trust = evaluation }
            begin(settings)
        } catch {
            fail(error.message)
        }
    }

    /// False when TLS was begun on this connection before.
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
            // Settings that the core refuses have ended the connection. Otherwise it is ending already.
            note("a startTLS failed: \(error)")
        }
    }

    private func fail(_ message: String) {
        core.fail(AsyncSocketError(.tls, blame: .caller, operation: "startTLS", message: message))
    }

    /// The delegate has neither of the two methods that decide about a peer.
    func refuseUnaskedTrust() {
        fail(
            "GCDAsyncSocketManuallyEvaluateTrust specified in tlsSettings, "
                + "but delegate doesn't implement socket:shouldTrustPeer:")
    }
}
