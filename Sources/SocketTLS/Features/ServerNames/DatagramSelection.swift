internal import COpenSSL

// Rules for selecting a DTLS server's settings by server name, in addition to the rules of `TLSServerNames`:
//  1. The settings are selected before the engine exists, from the ClientHello with the cookie. The engine gets
//     the same datagrams again, and rejects a ClientHello that OpenSSL reads differently (`RepeatedHello`).
//  2. A ClientHello in fragments is collected first. Fragments of other messages are dropped: the client
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
    private var fragments = HelloFragments()
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
        if self.settings.trustEvaluation != .builtIn, settings.trustEvaluation == .builtIn { settings.trustEvaluation = .delegate }
        return .chosen(DatagramChoice(settings: settings, context: context, hello: hello, datagrams: fragments.datagrams))
    }
}

/// The settings for one DTLS client, and the datagrams with its ClientHello.
package struct DatagramChoice {
    package let settings: TLSSettingValues
    package let context: TLSContext
    let hello: TLSClientHello?
    package let datagrams: [[UInt8]]
}

/// Collects a ClientHello from its fragments (RFC 6347, section 4.2.3).
private struct HelloFragments {
    private var parts: [(offset: Int, bytes: [UInt8])] = []
    private var message: (number: Int, length: Int)?
    private var sequence: UInt64 = 0
    private var byteCount = 0
    /// The datagrams that contain the fragments.
    private(set) var datagrams: [[UInt8]] = []

    private static let byteLimit = 64 * 1024

    /// Returns the message with a four-byte header, as in TLS, once it is complete.
    mutating func add(_ datagram: UnsafeRawBufferPointer) -> [UInt8]? {
        guard byteCount + datagram.count <= Self.byteLimit else { return nil }
        let known = parts.count
        var rest = datagram
        while let header = RecordHeader(rest) {
            let record = UnsafeRawBufferPointer(rebasing: rest[RecordHeader.size..<header.recordSize])
            rest = UnsafeRawBufferPointer(rebasing: rest[header.recordSize...])
            guard header.type == RecordHeader.handshake, header.epoch == 0 else { continue }
            sequence = header.sequence
            readParts(record)
        }
        guard parts.count > known else { return nil }
        byteCount += datagram.count
        datagrams.append(Array(datagram))
        return whole
    }

    private mutating func readParts(_ record: UnsafeRawBufferPointer) {
        var reader = FieldReader(record[...])
        while let type = reader.number(of: 1), let length = reader.number(of: 3), let number = reader.number(of: 2),
            let offset = reader.number(of: 3), let part = reader.field(lengthOf: 3)
        {
            let first = message ?? (number, length)
            guard type == Int(SSL3_MT_CLIENT_HELLO), first == (number, length), length <= ClientHelloMessage.bytesOfMessage,
                offset + part.count <= length
            else { continue }
            message = first
            parts.append((offset, Array(part)))
        }
    }

    private var whole: [UInt8]? {
        guard let length = message?.length else { return nil }
        var bytes: [UInt8] = []
        for part in parts.sorted(by: { $0.offset < $1.offset }) {
            guard part.offset <= bytes.count else { return nil }
            bytes += part.bytes.dropFirst(bytes.count - part.offset)
        }
        guard bytes.count == length else { return nil }
        return [UInt8(SSL3_MT_CLIENT_HELLO), UInt8(length >> 16), UInt8(length >> 8 & 0xFF), UInt8(length & 0xFF)] + bytes
    }

    /// Returns an unencrypted alert. Its record has the number of the ClientHello, as the first record of a
    /// handshake would have.
    func alert(_ alert: TLSAlert) -> [UInt8] {
        let number = withUnsafeBytes(of: sequence.bigEndian) { Array($0.suffix(6)) }
        return [UInt8(SSL3_RT_ALERT), 0xFE, 0xFD, 0, 0] + number + [0, 2, UInt8(SSL3_AL_FATAL), alert.rawValue]
    }
}
