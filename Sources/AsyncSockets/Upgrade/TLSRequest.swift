internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// What `startTLS` was asked to do: valid settings, and the context made of them.
struct TLSRequest: Sendable {
    let settings: TLSSettingValues
    let context: TLSContext
    /// The waiter that is answered when the handshake ends; nil: the delegate.
    var waiter: (any OperationWaiter<HandshakeNews>)?
    /// The waiter decides about the peer's certificate; otherwise the delegate.
    var waiterDecidesTrust = false
    /// Of a task: it waits for no read of another one.
    var waitsForNoTask = false
    /// The host and port that the caller connected to, if it did.
    var endpoint: String?
}

/// A server's request for its client's certificate after the handshake.
struct ClientCertificateRequest: Sendable {
    let isRequired: Bool
    /// The waiter that is answered; nil: the delegate.
    let waiter: (any OperationWaiter<HandshakeNews>)?
    /// The waiter decides about the certificate; otherwise the delegate.
    let waiterDecidesTrust: Bool
    /// Someone is there to decide, if the settings want that.
    let hasDecider: Bool
}

/// News for an upgrade that is under way.
enum UpgradeNews: Sendable {
    case verdict(Bool, of: TrustQuestionNumber)
    /// A task is deciding about the peer, and waits for the next event with this waiter.
    indirect case awaited(by: any OperationWaiter<HandshakeNews>)
    /// The settings for a client.
    indirect case chosen(TLSServerChoice)
    /// A step of the handshake is done.
    case worked(HandshakeWork)
    /// The turn in which the handshake was complete is over.
    case sendTickets
}

/// The answer to a waiter for TLS.
enum HandshakeNews: Sendable {
    case secured(CopyOnWrite<TLSSession>?)
    /// The waiter decides about the peer's certificate, and waits again.
    indirect case asksTrust(PeerTrust, TrustQuestionNumber)
}

/// Distinguishes the questions about certificates: a verdict is about one of them, and not about one that
/// comes later on the same connection.
struct TrustQuestionNumber: Equatable, Sendable {
    private static let last = Atomic<UInt64>(0)
    private let value = last.add(1, ordering: .relaxed).newValue
}
