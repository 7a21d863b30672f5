internal import COpenSSL
internal import SocketBuffers

/// Whether the function of a server's names was asked.
struct ServerSelection {
    let names: TLSServerNames
    var isAsked = false
    /// So many bytes have to be there before it is worth another look.
    var minimum = 0
}

extension TLSEngine {
    /// Chooses the settings of a server by the ClientHello. Nil: the handshake may go on.
    func select() -> HandshakeAnswer? {
        guard let selection else { return nil }
        guard !selection.isAsked, received.count >= selection.minimum || bio.hasReachedEndOfFile else { return .incomplete }
        switch TLSClientHello.read(bio.received.readableBytes) {
        case .incomplete(let minimum) where !bio.hasReachedEndOfFile:
            self.selection?.minimum = minimum
            return .incomplete
        case .incomplete, .unreadable:
            self.selection = nil
            return nil
        case .complete(let hello):
            guard let choice = selection.names.answer(to: hello) else {
                self.selection?.isAsked = true
                return .awaitingSettings(TLSServerQuestion(names: selection.names, hello: hello))
            }
            choose(choice)
            if case .failed(let error) = phase { return .failed(error) }
            return nil
        }
    }

    /// The answer to `.awaitingSettings`; call `handshake()` after it. Without an open question, nothing
    /// happens.
    package func choose(_ choice: TLSServerChoice) {
        guard selection != nil, case .handshaking = phase else { return }
        selection = nil
        switch choice {
        case .default: break
        case .chosen(let chosen):
            do throws(TLSError) {
                events.gate = TrustGate(chosen.choice.settings.trustEvaluation)
                try replaceContext(chosen.choice.context)
            } catch {
                phase = .failed(error)
            }
        case .refused:
            refuse(.unrecognizedName, TLSError(.unrecognizedName, "The client asks for a name that this server does not have."))
        case .failed(let reason):
            refuse(
                .internalError,
                TLSError(.invalidSettings, "No settings for the client: \(reason)", operation: "TLSServerNames"))
        }
    }

    /// Sends an alert before there are any keys: a record in plaintext (RFC 8446, 5.1 and 6).
    private func refuse(_ alert: TLSAlert, _ error: TLSError) {
        let record: [UInt8] = [21, 3, 3, 0, 2, 2, alert.rawValue]
        record.withUnsafeBytes { output.append($0) }
        events.sawAlert(alert, isFatal: true, isOurs: true)
        var error = error
        error.sentAlert = alert
        phase = .failed(error)
    }
}
