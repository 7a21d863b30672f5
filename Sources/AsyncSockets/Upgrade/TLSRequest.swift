internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// A call of `startTLS`: valid settings, and the context created from them.
struct TLSRequest: Sendable {
    let settings: TLSSettingValues
    let context: TLSContext
    /// Notified when the handshake completes or fails. If `nil`, the delegate is notified instead.
    var waiter: (any OperationWaiter<HandshakeNews>)?
    /// Whether the waiter, not the delegate, decides about the peer's certificate.
    var waiterDecidesTrust = false
    /// Whether the call fails if another task has a pending read. True for calls by tasks.
    var waitsForNoTask = false
    /// The host and port that the caller connected to, if any.
    var endpoint: String?
}

/// A server's request for its client's certificate after the handshake.
struct ClientCertificateRequest: Sendable {
    let isRequired: Bool
    /// Receives the result. If `nil`, the delegate receives it instead.
    let waiter: (any OperationWaiter<HandshakeNews>)?
    /// Whether the waiter, not the delegate, decides about the certificate.
    let waiterDecidesTrust: Bool
    /// Whether a waiter or a delegate can decide, if the settings require a decision.
    let hasDecider: Bool
}

enum UpgradeNews: Sendable {
    case verdict(Bool, of: TrustQuestionNumber)
    /// A task is deciding about the peer, and waits for the next event with this waiter.
    indirect case awaited(by: any OperationWaiter<HandshakeNews>)
    indirect case chosen(TLSServerChoice)
    case worked(HandshakeWork)
    /// The turn in which the handshake completed is finished.
    case sendTickets
}

/// The result passed to a waiter for TLS.
enum HandshakeNews: Sendable {
    case secured(CopyOnWrite<TLSSession>?)
    /// The waiter's task must decide about the peer's certificate, and then waits again.
    indirect case asksTrust(PeerTrust, TrustQuestionNumber)
}

/// Identifies a question about a certificate, so that a late verdict is not applied to a later question on
/// the same connection.
struct TrustQuestionNumber: Equatable, Sendable {
    private static let last = Atomic<UInt64>(0)
    private let value = last.add(1, ordering: .relaxed).newValue
}
