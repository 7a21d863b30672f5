/// Bytes that a client sends with its first message, before the server has responded (early data,
/// "0-RTT"; RFC 8446, section 2.3).
///
/// Early data saves a round trip, **but has risks**:
/// - An attacker on the network can replay the bytes, to the same server or to another server with the
///   same keys. They are then received, and possibly processed, more than once. Send only requests that
///   are safe to repeat, such as a request that changes no state.
/// - The bytes have no forward secrecy: an attacker who later obtains the ticket key can read them.
/// - The bytes are sent before the server proves its identity. The client relies on the verdict from the
///   resumed session.
///
/// These are the first bytes of the connection, ahead of all other writes. They are sent with the first
/// message if a session allows that many bytes. If not, or if the server rejects the early data, they are
/// sent immediately after the handshake. The server therefore receives them exactly once, unless they are
/// replayed or withheld (`TLSEarlyDataOutcome.withheld`). `TLSSession.earlyData` contains the outcome.
/// Early data is part of the settings, so each connection that uses the settings sends the bytes.
public struct TLSEarlyData: Sendable, Hashable {
    /// The bytes, from 1 to 65,536.
    public var bytes: [UInt8]
    /// The application protocol (ALPN) that the bytes are for. Required if the settings contain several
    /// protocols.
    ///
    /// If another protocol or no protocol is negotiated, the bytes are not sent after the handshake: see
    /// `TLSEarlyDataOutcome.withheld`. If `nil`, the bytes are for the only protocol in the settings, or
    /// for a connection without ALPN if the settings contain no protocol.
    public var applicationProtocol: String?

    /// Creates early data.
    public init(_ bytes: [UInt8], applicationProtocol: String? = nil) {
        self.bytes = bytes
        self.applicationProtocol = applicationProtocol
    }

    static let byteLimit = 65_536
}

/// The outcome of a connection's early data (RFC 8446, section 4.2.10).
@nonexhaustive
public enum TLSEarlyDataOutcome: Sendable, Hashable {
    /// The client sent no early data with its first message.
    case notOffered
    /// The server accepted the early data.
    case accepted
    /// The server rejected the early data.
    case rejected
    /// On a client, the negotiated protocol (ALPN) is not the protocol of the bytes, so they are not sent
    /// after the handshake. Write your request again in the negotiated protocol.
    case withheld
}

// MARK: - Servers

/// Early bytes that a server has received before the client has completed the handshake.
///
/// The bytes may be a replay of a recorded connection.
public struct TLSEarlyDataRequest: Sendable, Hashable {
    /// All early bytes received so far. More may follow.
    public let bytes: [UInt8]
    /// The name that the client sent by SNI; `nil` if it sent no name.
    public let serverName: String?
    /// The protocol negotiated by ALPN, or `nil`.
    public let applicationProtocol: String?

    /// Creates a request, for testing code that responds to early data.
    public init(bytes: [UInt8], serverName: String? = nil, applicationProtocol: String? = nil) {
        self.bytes = bytes
        self.serverName = serverName
        self.applicationProtocol = applicationProtocol
    }
}

/// A server's response to early bytes.
public enum TLSEarlyDataResponse: Sendable, Hashable {
    /// Sends these bytes to the client immediately. The early bytes are consumed and are not read again.
    case send([UInt8])
    /// The early bytes are incomplete. The responder is called again when more have arrived. If no more
    /// arrive, the early bytes are read after the handshake.
    case awaitMore
    /// The early bytes are read after the handshake, ahead of all later data.
    case afterHandshake
}

/// A function that responds to early data before the handshake is complete.
///
/// **Dangerous**: see `TLSEarlyData`. Respond only to requests that are safe to repeat, and return
/// `.afterHandshake` for any other request: a replayed connection never completes the handshake.
public final class TLSEarlyDataResponder: Sendable, Hashable {
    let respond: @Sendable (TLSEarlyDataRequest) async -> TLSEarlyDataResponse

    /// Creates a responder.
    ///
    /// - Parameter respond: Called off the event loops, up to 16 times per connection. The handshake is
    ///   suspended until it returns, and its running time is part of `TLSSettings.handshakeTimeout`.
    public init(_ respond: @escaping @Sendable (TLSEarlyDataRequest) async -> TLSEarlyDataResponse) {
        self.respond = respond
    }

    /// Returns whether both values are the same object.
    public static func == (left: TLSEarlyDataResponder, right: TLSEarlyDataResponder) -> Bool { left === right }

    /// Hashes the identity of the object.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
