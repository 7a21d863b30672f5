/// Settings, and the context that is made of them.
package struct NamedContext: Sendable {
    let settings: TLSSettingValues
    let context: TLSContext
}

/// The answer of the server's program: the settings for one connection, or what becomes of early
/// data.
package enum TLSServerChoice: Sendable {
    case settings(Settings)
    case early(TLSEarlyAnswer)

    package enum Settings: Sendable {
        /// Those that hold the names.
        case useDefault
        case named(NamedContext)
        /// This server does not have that name.
        case refused
        /// The function has thrown.
        case failed(String)
    }
}

/// A question that only the server's program can answer.
package enum TLSServerQuestion: Sendable {
    /// Which settings are for a client.
    case settings(TLSServerNames, TLSClientHello)
    /// How to answer early data.
    case early(TLSEarlyDataResponder, TLSEarlyRequest)

    /// Asks the function of the program.
    package func answer() async -> TLSServerChoice {
        switch self {
        case .settings(let names, let hello): .settings(await Self.choice(of: names, hello))
        case .early(let responder, let request): .early(await responder.respond(request))
        }
    }

    private static func choice(of names: TLSServerNames, _ hello: TLSClientHello) async -> TLSServerChoice.Settings {
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
