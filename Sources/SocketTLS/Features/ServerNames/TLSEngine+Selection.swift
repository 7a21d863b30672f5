internal import COpenSSL
internal import SocketBuffers

extension TLSEngine {
    /// Selects a server's settings for the ClientHello. Returns `nil` if the handshake can continue.
    func select() -> HandshakeAnswer? {
        guard case .choosing = phase, let selection = facts.selection else { return nil }
        guard !selection.isAsked, received.count >= selection.minimum || bio.hasReachedEndOfFile else { return .incomplete }
        switch selection.reader.read(bio.received.readableBytes) {
        case .incomplete(let minimum) where !bio.hasReachedEndOfFile:
            selection.minimum = minimum
            return .incomplete
        case .incomplete, .unreadable:
            course.chose()
            return nil
        case .complete(let hello):
            return select(by: hello, selection)
        }
    }

    private func select(by hello: TLSClientHello, _ selection: ServerSelection) -> HandshakeAnswer? {
        facts.choose(by: hello)
        guard let choice = selection.names.answer(to: hello) else {
            selection.isAsked = true
            return .awaitingSettings(.settings(selection.names, hello, over: .stream))
        }
        switch choice {
        case .useDefault: choose(.useDefault)
        case .listed(let number):
            choose(.named(NamedContext(settings: selection.names.all[number], context: context.named[number])))
        case .refused, .chosen: choose(.refused)
        }
        if case .failed(let error) = phase { return .failed(error) }
        return nil
    }

    /// Applies the settings that the program has chosen. Does nothing if no choice is pending.
    func choose(_ choice: TLSServerChoice.Settings) {
        guard case .choosing = phase else { return }
        course.chose()
        switch choice {
        case .useDefault: break
        case .named(let named):
            do throws(TLSError) {
                judge.gate = judge.gate.replaced(by: named.settings)
                try replaceContext(named.context)
            } catch {
                course.fail(error)
            }
        case .refused:
            refuse(.unrecognizedName, .unrecognizedName(facts.selection?.hello))
        case .failed(let reason):
            refuse(.internalError, .noSettings(reason))
        }
    }

    /// Sends an unencrypted alert, before keys exist, and fails the handshake.
    private func refuse(_ alert: TLSAlert, _ error: TLSError) {
        sendPlaintextAlert(alert)
        var error = error
        error.sentAlert = alert
        course.fail(error)
    }
}

extension Facts {
    /// Notes the ClientHello for which a server's settings are selected.
    fileprivate func choose(by hello: TLSClientHello) {
        selection?.hello = hello
        nameDigest = hello.nameDigest
    }
}

extension DatagramChoice {
    /// Makes the engine reject any other ClientHello. Call this after `DTLSEngine.listen(_:)`, where OpenSSL
    /// reports the first fragment of a ClientHello, and before the handshake, where OpenSSL reports the whole
    /// message.
    package func apply(to engine: DTLSEngine) {
        let facts = engine.engine.facts
        facts.selection = ServerSelection(names: names)
        if let hello { facts.choose(by: hello) }
    }
}
