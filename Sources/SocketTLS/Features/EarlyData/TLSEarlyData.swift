internal import SocketBuffers

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

/// The early data that a server accepts from clients that resume a session (RFC 8446, section 2.3).
///
/// ```swift
/// settings.sessionTickets = .issued(1)
/// settings.acceptedEarlyData = TLSAcceptedEarlyData(upTo: 16_384)
/// ```
///
/// Early data is delivered before all other data when the handshake is complete, so data that an attacker
/// recorded and replayed is never delivered. Early data therefore saves time only with a responder, which
/// replies before the handshake is complete. Each ticket can be used for early data once, and only if the
/// ticket age that the client states is correct to within a few seconds (RFC 8446, section 8). If more than
/// 49,152 tickets are used within 20 seconds, further early data is rejected. Early data is not forward
/// secret: the keys of the tickets, which this process keeps for two hours, can decrypt recorded data.
public struct TLSAcceptedEarlyData: Sendable, Hashable {
    /// The maximum size in bytes for each client, from 1 to 65,536.
    public var maximumBytes: Int
    /// Responds to early data before the handshake is complete. If `nil`, early data is read after the
    /// handshake.
    public var responder: TLSEarlyDataResponder?

    /// - Parameters:
    ///   - maximumBytes: The maximum size in bytes for each client, from 1 to 65,536.
    ///   - responder: Responds to early data before the handshake is complete. If `nil`, early data is read
    ///     after the handshake.
    public init(upTo maximumBytes: Int, responder: TLSEarlyDataResponder? = nil) {
        self.maximumBytes = maximumBytes
        self.responder = responder
    }
}

enum EarlyData {
    case client(ClientEarlyData)
    case server(ServerEarlyData)
}

struct EarlyDataFacts {
    /// The number of early bytes that a server delivers before all other data.
    var byteCount = 0
    /// Whether a client did not send its early data because another application protocol was negotiated.
    var isWithheld = false
}

final class ClientEarlyData {
    enum Stage {
        /// To be sent with the ClientHello.
        case first
        case offered
        /// To be sent after the handshake.
        case later
    }

    let bytes: [UInt8]
    let applicationProtocol: String?
    var stage: Stage

    init(_ bytes: [UInt8], for applicationProtocol: String?, _ stage: Stage) {
        self.bytes = bytes
        self.applicationProtocol = applicationProtocol
        self.stage = stage
    }
}

final class ServerEarlyData {
    /// Accepted bytes that have been neither delivered nor handled by the responder.
    let bytes = PreBuffer()
    /// The responder, which can reply before the handshake is complete. `nil` if the settings contain no
    /// responder, or if it has already decided.
    var responder: TLSEarlyDataResponder?
    var isAsking = false
    /// Whether OpenSSL has returned all early data.
    var isComplete = false
    var hasAnswered = false
    private var questions = 0
    private var countAtQuestion = 0

    private static let questionLimit = 16

    init(_ responder: TLSEarlyDataResponder?) {
        self.responder = responder
    }

    /// Returns the responder if it should be called now, because new bytes have arrived.
    func takeQuestion() -> TLSEarlyDataResponder? {
        guard let responder, !isComplete, questions < Self.questionLimit, bytes.count > countAtQuestion else { return nil }
        (isAsking, countAtQuestion) = (true, bytes.count)
        questions += 1
        return responder
    }
}

// Rules against replays (RFC 8446, 8):
//  1. OpenSSL accepts early data only if the ticket age stated in the ClientHello is correct, by the system
//     clock, to within a window of 11 seconds (8.3; `TICKET_AGE_ALLOWANCE`). It also enforces the other
//     conditions of 4.2.10: the first ticket, the same application protocol, no HelloRetryRequest.
//  2. The system clock may be changed. Each ticket therefore also records when it was issued by our own
//     clock, and the two ages must agree to within 2 seconds. As a result, a ClientHello and its replay
//     are less than 15 seconds apart.
//  3. A ticket can be used for early data once within 20 seconds (8.1). It is identified by the secret
//     that it resumes, which is different for each ticket.
//  4. When the record is full, early data is rejected. Entries are never removed early to make room.
//  5. The record belongs to the ticket keys. Only this process has these keys, and new keys are created when
//     it restarts. Early data is therefore not available with shared keys.
//
// OpenSSL's own protection requires stateful tickets: for each ticket, it caches a whole session for an
// hour, whether or not the ticket is used. This record takes 25 bytes per use, for 20 to 40 seconds.

/// The tickets that were recently used for early data.
package struct EarlyDataRecord {
    /// The first 128 bits of a digest.
    package struct Ticket: Hashable {
        let high: UInt64
        let low: UInt64

        package init(high: UInt64, low: UInt64) {
            (self.high, self.low) = (high, low)
        }
    }

    /// The minimum time for which a ticket is remembered, in seconds.
    package static let period = 20
    /// The maximum number of tickets in one period: three quarters of a power of two, which a `Set`
    /// stores in 1.2 MB.
    package static let standardLimit = 49_152

    private let limit: Int
    private var current: Set<Ticket> = []
    private var previous: Set<Ticket> = []
    private var start = 0

    package init(limit: Int = standardLimit) {
        self.limit = limit
    }

    /// Records a ticket, and returns whether it may be used for early data: only once, and not if the
    /// record is full.
    package mutating func admit(_ ticket: Ticket, at now: Int) -> Bool {
        if now - start >= Self.period {
            previous = now - start >= 2 * Self.period ? [] : current
            current = []
            start = now
        }
        guard current.count < limit, !previous.contains(ticket) else { return false }
        return current.insert(ticket).inserted
    }
}
