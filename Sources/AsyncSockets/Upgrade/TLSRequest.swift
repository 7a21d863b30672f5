internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// A call to `startTLS`: valid settings, and the context created from them.
struct TLSRequest: Sendable {
    var settings: TLSSettingValues
    let context: TLSContext
    /// Notified when the handshake completes or fails. If `nil`, the delegate is notified instead.
    var waiter: (any OperationWaiter<HandshakeNews>)?
    /// Whether the waiter, not the delegate, decides whether to trust the peer's certificate.
    var waiterDecidesTrust = false
    /// Whether the call fails if another task has a pending read. True for calls by tasks.
    var waitsForNoTask = false
    /// The host and port that the caller connected to, if any.
    var endpoint: String?
    /// The messages to exchange before the handshake, if any.
    var dialogue: DialogueRequest?
}

/// A server's request for its client's certificate after the handshake.
struct ClientCertificateRequest: Sendable {
    let isRequired: Bool
    /// Receives the result. If `nil`, the delegate receives it instead.
    let waiter: (any OperationWaiter<HandshakeNews>)?
    /// Whether the waiter, not the delegate, decides whether to trust the certificate.
    let waiterDecidesTrust: Bool
    /// Whether there is a waiter or a delegate to make the trust decision, if the settings require it.
    let hasDecider: Bool
}

enum UpgradeNews: Sendable {
    case verdict(Bool, of: TrustQuestionNumber)
    /// A task is deciding whether to trust the peer. This waiter receives the next event.
    indirect case awaited(by: any OperationWaiter<HandshakeNews>)
    indirect case chosen(TLSServerChoice)
    /// The settings of a client after its program's look-up, or the reason why the handshake must not start.
    indirect case lookedUp(Result<TLSSettingValues, TLSError>)
    /// The lent step of the handshake is complete.
    case worked
}

/// The result passed to a waiter for TLS.
enum HandshakeNews: Sendable {
    case secured(CopyOnWrite<TLSSession>?)
    /// The waiter's task must decide whether to trust the peer's certificate, and then wait again.
    indirect case asksTrust(PeerTrust, TrustQuestionNumber)
}

/// Identifies the question whether to trust a certificate, so that a late verdict is not applied to a later
/// question on the same connection.
struct TrustQuestionNumber: Equatable, Sendable {
    private static let last = Atomic<UInt64>(0)
    private let value = last.add(1, ordering: .relaxed).newValue
}
