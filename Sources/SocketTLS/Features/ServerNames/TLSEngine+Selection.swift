internal import COpenSSL
internal import SocketBuffers

extension TLSEngine {
    /// Selects a server's settings for the ClientHello. Returns `nil` if the handshake can continue.
    func select() -> HandshakeAnswer? {
        guard case .choosing(let selection) = phase else { return nil }
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
            refuse(.unrecognizedName, .unrecognizedName(facts.chosenHello))
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
    /// Calls `body` with the comparison of ClientHellos disabled, because OpenSSL may report a fragment.
    func withoutComparingHellos<Result>(_ body: () -> Result) -> Result {
        let compares = choosesByHello
        choosesByHello = false
        defer { choosesByHello = compares }
        return body()
    }

    /// Returns the reason to reject a second ClientHello (RFC 8446, 4.1.2) if its server name or protocols
    /// differ from those in the first ClientHello, for which the settings were selected. OpenSSL does not
    /// compare the two messages and uses the second.
    func complaintAboutChange(in hello: UnsafeRawBufferPointer) -> String? {
        guard choosesByHello, !isEstablished else { return nil }
        guard let chosenHello else { return "no settings could be selected for its server name" }
        if TLSClientHello(hello, hasCookie: bio.records != nil)?.asksForTheSame(as: chosenHello) == true { return nil }
        return "its server name or protocols differ from those in the ClientHello for which the settings were selected"
    }
}
