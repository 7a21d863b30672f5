internal import COpenSSL
internal import SocketBuffers

/// Whether the function of a server's names was asked.
struct ServerSelection {
    let names: TLSServerNames
    var isAsked = false
    /// So many bytes have to be there before it is worth another look.
    var minimum = 0
    var reader = ClientHelloReader()

    init(names: TLSServerNames) {
        self.names = names
    }
}

/// Settings, and the context that is made of them.
package struct NamedContext: Sendable {
    let settings: TLSSettings
    let context: TLSContext
}

/// What code of the server's program has answered: the settings for one connection, or what becomes of early
/// data.
package enum TLSServerChoice: Sendable {
    /// Those that hold the names.
    case useDefault
    case named(NamedContext)
    /// No one has that name here.
    case refused
    /// The function has thrown.
    case failed(String)
    /// What a server does with early data.
    case early(TLSEarlyAnswer)
}

/// What only code of the server's program can answer.
package enum TLSServerQuestion: Sendable {
    /// Which settings are for a client.
    case settings(TLSServerNames, TLSClientHello)
    /// What becomes of early data.
    case early(TLSEarlyDataResponder, TLSEarlyRequest)

    /// Asks the function of the program.
    package func answer() async -> TLSServerChoice {
        switch self {
        case .settings(let names, let hello): await Self.choice(of: names, hello)
        case .early(let responder, let request): .early(await responder.respond(request))
        }
    }

    private static func choice(of names: TLSServerNames, _ hello: TLSClientHello) async -> TLSServerChoice {
        do {
            switch try await names.ask(hello) {
            case .useDefault: return .useDefault
            case .chosen(let settings):
                return .named(NamedContext(settings: settings, context: try TLSContext.context(for: settings)))
            case .listed, .refused: return .refused
            }
        } catch {
            return .failed("\(error)")
        }
    }
}

extension TLSEngine {
    /// Chooses the settings of a server by the ClientHello. Nil: the handshake may go on.
    func select() -> HandshakeAnswer? {
        guard let selection else { return nil }
        guard !selection.isAsked, received.count >= selection.minimum || bio.hasReachedEndOfFile else { return .incomplete }
        switch self.selection?.reader.read(bio.received.readableBytes) ?? .unreadable {
        case .incomplete(let minimum) where !bio.hasReachedEndOfFile:
            self.selection?.minimum = minimum
            return .incomplete
        case .incomplete, .unreadable:
            self.selection = nil
            return nil
        case .complete(let hello):
            events.chosenHello = hello
            events.ticketFacts.name = hello.nameDigest
            guard let choice = selection.names.answer(to: hello) else {
                self.selection?.isAsked = true
                return .awaitingSettings(.settings(selection.names, hello))
            }
            switch choice {
            case .useDefault: self.selection = nil
            case .listed(let number):
                choose(.named(NamedContext(settings: selection.names.all[number], context: context.named[number])))
            case .refused, .chosen: choose(.refused)
            }
            if case .failed(let error) = phase { return .failed(error) }
            return nil
        }
    }

    /// The answer to `.awaitingSettings`; call `handshake()` after it. Without an open question, nothing
    /// happens.
    package func choose(_ choice: TLSServerChoice) {
        if case .early(let answer) = choice { return answerEarly(answer) }
        guard selection != nil, case .handshaking = phase else { return }
        selection = nil
        switch choice {
        case .useDefault, .early: break
        case .named(let named):
            do throws(TLSError) {
                events.gate = events.gate.replaced(by: named.settings)
                try replaceContext(named.context)
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
