internal import COpenSSL

// Rules for selecting a DTLS server's settings by server name, in addition to the rules of `TLSServerNames`:
//  1. The settings are selected before the engine exists, from the ClientHello with the cookie. The engine
//     gets the same datagrams again, and rejects a ClientHello that OpenSSL reads differently
//     (`RepeatedHello`).
//  2. A fragmented ClientHello is reassembled first. Fragments of other messages are dropped: the client
//     retransmits them.

/// Selects a DTLS server's settings for the server name that its client requests (SNI).
package struct DatagramSelection {
    package enum Step {
        /// The ClientHello is incomplete.
        case incomplete
        /// The server's program must choose. Pass its choice to `choose(_:)`.
        case asks(TLSServerQuestion)
        case chosen(DatagramChoice)
        /// No settings are available. Send `alert`, which is a datagram.
        case refused(TLSError, alert: [UInt8])
    }

    private let settings: TLSSettingValues
    private let context: TLSContext
    private let names: TLSServerNames
    private var fragments = MessageFragments(of: UInt8(SSL3_MT_CLIENT_HELLO), limit: ClientHelloMessage.bytesOfMessage)
    private var hello: TLSClientHello?

    /// Returns `nil` if the settings contain no server names.
    package init?(_ settings: TLSSettingValues, _ context: TLSContext) {
        guard let names = settings.serverNames else { return nil }
        (self.settings, self.context, self.names) = (settings, context, names)
    }

    package mutating func receive(_ datagram: UnsafeRawBufferPointer) -> Step {
        guard let message = fragments.add(datagram) else { return .incomplete }
        hello = message.withUnsafeBytes { TLSClientHello($0, hasCookie: true) }
        // The engine rejects the message, because no settings were selected for it.
        guard let hello else { return chosen(settings, context) }
        guard let answer = names.answer(to: hello) else { return .asks(.settings(names, hello, over: .datagrams)) }
        switch answer {
        case .useDefault: return chosen(settings, context)
        case .listed(let number): return chosen(names.all[number], context.named[number])
        case .refused, .chosen: return choose(.refused)
        }
    }

    package func choose(_ choice: TLSServerChoice.Settings) -> Step {
        switch choice {
        case .useDefault: return chosen(settings, context)
        case .named(let named): return chosen(named.settings, named.context)
        case .refused:
            return .refused(.unrecognizedName(hello), alert: fragments.alert(.unrecognizedName))
        case .failed(let reason):
            return .refused(.noSettings(reason), alert: fragments.alert(.internalError))
        }
    }

    private func chosen(_ settings: TLSSettingValues, _ context: TLSContext) -> Step {
        var settings = settings
        settings.serverNames = nil
        settings.handshakeTimeout = self.settings.handshakeTimeout
        settings.trustTimeout = self.settings.trustTimeout
        // Rule 10 of `TrustGate`.
        let asks = self.settings.trustEvaluation != .builtIn
        if asks, settings.trustEvaluation == .builtIn { settings.trustEvaluation = .delegate }
        return .chosen(
            DatagramChoice(settings: settings, context: context, names: names, hello: hello, datagrams: fragments.datagrams))
    }
}

/// The settings for one DTLS client, and the datagrams with its ClientHello.
package struct DatagramChoice {
    package let settings: TLSSettingValues
    package let context: TLSContext
    let names: TLSServerNames
    let hello: TLSClientHello?
    package let datagrams: [[UInt8]]
}

extension TLSError {
    static func unrecognizedName(_ hello: TLSClientHello?) -> TLSError {
        let name = hello?.serverName.map { "the server name \"\($0.printable)\", which" } ?? "a server name that"
        return TLSError(.unrecognizedName, "the client requested \(name) this server does not serve")
    }

    static func noSettings(_ reason: String) -> TLSError {
        TLSError(.invalidSettings, "no settings could be chosen for the client: \(reason)", operation: "TLSServerNames")
    }
}
