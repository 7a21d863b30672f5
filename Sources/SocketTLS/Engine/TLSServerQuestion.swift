package struct NamedContext: Sendable {
    let settings: TLSSettingValues
    let context: TLSContext
}

/// A decision by the server's program: the settings for one connection, how to treat early data, or the
/// key that it shares with a client.
package enum TLSServerChoice: Sendable {
    case settings(Settings)
    case early(TLSEarlyDataResponse)
    case key(KeyAnswer)

    package enum Settings: Sendable {
        /// The settings that contain the names.
        case useDefault
        case named(NamedContext)
        /// This server does not serve the requested name.
        case refused
        /// The function threw an error, with this description.
        case failed(String)
    }
}

/// A question that only the server's program can decide.
package enum TLSServerQuestion: Sendable {
    case settings(TLSServerNames, TLSClientHello, over: TLSTransport)
    case early(TLSEarlyDataResponder, TLSEarlyDataRequest)
    case key(KeyQuestion)

    package func answer() async -> TLSServerChoice {
        switch self {
        case .settings(let names, let hello, let transport): .settings(await Self.choice(of: names, hello, transport))
        case .early(let responder, let request): .early(await responder.respond(request))
        case .key(let question): .key(await question.answer())
        }
    }

    private static func choice(
        of names: TLSServerNames, _ hello: TLSClientHello, _ transport: TLSTransport
    ) async -> TLSServerChoice.Settings {
        do {
            switch try await names.ask(hello) {
            case .useDefault: return .useDefault
            case .chosen(let settings):
                return .named(NamedContext(settings: settings, context: try TLSContext.context(for: settings, over: transport)))
            case .listed, .refused: return .refused
            }
        } catch {
            return .failed("\(error)")
        }
    }
}
