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
