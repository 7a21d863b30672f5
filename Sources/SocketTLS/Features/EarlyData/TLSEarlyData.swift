/// Bytes that a client sends with its first message, before the server has answered (early data, "0-RTT";
/// RFC 8446, section 2.3).
///
/// They save a round trip. **What it costs**:
/// - Someone on the network can send them again, to the same server or to another one with the same keys:
///   they are received, and perhaps acted on, more than once. Give only what may be done twice, such as a
///   request that changes nothing.
/// - They have no forward secrecy: someone who gets the key of the ticket later can read them.
/// - They leave before the server proves who it is: the verdict of the session that is resumed counts.
///
/// They are the first bytes of the connection, and the server gets them exactly once unless someone repeats
/// them: with the first message if a session allows so many, and otherwise, or if the server does not take
/// them so, right after the handshake. `TLSSession.earlyData` tells which. All other writes follow them.
/// They belong to the settings of one connection: each connection that is made with them sends the bytes.
public struct TLSEarlyData: Sendable, Hashable {
    /// The bytes: 1 to 65,536.
    public var bytes: [UInt8]
    /// The protocol (ALPN) that they belong to: needed when the settings name several.
    ///
    /// If another one is agreed on, or none, the bytes do not follow the handshake:
    /// `TLSEarlyDataOutcome.withheld`. Nil: the only one of the settings, or none.
    public var applicationProtocol: String?

    /// Early data.
    public init(_ bytes: [UInt8], applicationProtocol: String? = nil) {
        self.bytes = bytes
        self.applicationProtocol = applicationProtocol
    }

    static let byteLimit = 65_536
}

/// The outcome of the early data of a connection (RFC 8446, section 4.2.10).
public enum TLSEarlyDataOutcome: Sendable, Hashable {
    /// The client sent none with its first message.
    case notOffered
    /// The server took it.
    case accepted
    /// The server did not take it.
    case rejected
    /// On a client: the protocol (ALPN) that was agreed on is not the one that the bytes are for, so they do
    /// not follow the handshake. Write in that protocol what you want to say.
    case withheld
}

// MARK: - Servers

/// Early bytes that a server has received, before the client is confirmed.
///
/// Someone may have recorded them and sent them again.
public struct TLSEarlyRequest: Sendable, Hashable {
    /// All early bytes so far. More may come.
    public let bytes: [UInt8]
    /// The name of SNI; nil if there was none.
    public let serverName: String?
    /// The protocol chosen by ALPN, or nil.
    public let applicationProtocol: String?

    /// A request: for tests of code that answers one.
    public init(bytes: [UInt8], serverName: String? = nil, applicationProtocol: String? = nil) {
        self.bytes = bytes
        self.serverName = serverName
        self.applicationProtocol = applicationProtocol
    }
}

/// The answer of a server to early bytes.
public enum TLSEarlyAnswer: Sendable, Hashable {
    /// These bytes go to the client at once. The early bytes are used up: they are not read again.
    case send([UInt8])
    /// The early bytes are not complete: ask again when there are more. Otherwise they are read after the
    /// handshake.
    case awaitMore
    /// The early bytes are read after the handshake, like all others.
    case afterHandshake
}

/// A function that answers early data before the handshake is complete.
///
/// **Dangerous**: see `TLSEarlyData`. Answer only what may be done twice, and return `.afterHandshake` for
/// anything else: a replayed request never gets that far.
public final class TLSEarlyDataResponder: Sendable, Hashable {
    let respond: @Sendable (TLSEarlyRequest) async -> TLSEarlyAnswer

    /// - Parameter respond: Called off the event loops. The handshake waits for the answer, whose time counts
    ///   for `TLSSettings.handshakeTimeout`. It is asked up to 16 times for a connection.
    public init(_ respond: @escaping @Sendable (TLSEarlyRequest) async -> TLSEarlyAnswer) {
        self.respond = respond
    }

    /// True for the same object.
    public static func == (left: TLSEarlyDataResponder, right: TLSEarlyDataResponder) -> Bool { left === right }

    /// Hashes the identity of the object.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
