internal import SocketCore

/// The number of bytes that a connection has transferred.
struct CarriedBytes: Equatable, Sendable {
    /// Bytes for the reader, after decryption if TLS is used.
    var received = 0
    /// Bytes from the writer, before encryption if TLS is used.
    var sent = 0

    static func += (left: inout CarriedBytes, right: CarriedBytes) {
        left.received &+= right.received
        left.sent &+= right.sent
    }
}

/// Data that was lost when the connection closed.
struct ConnectionLoss: Sendable {
    /// `nil` if everything written was sent.
    var writes: LostWrites?
    /// Whether received bytes were still unread.
    var hasBytes = false

    var isNothing: Bool { writes == nil && !hasBytes }

    /// Records a dropped write and the reason.
    mutating func add(_ write: Completion<Void>, _ reason: AsyncSocketError) {
        let isAnswered = if case .answered = write { true } else { writes?.isAnswered ?? false }
        writes = LostWrites(error: reason, isAnswered: isAnswered)
    }
}

struct LostWrites: Sendable {
    let error: AsyncSocketError
    /// Whether a dropped write was already reported as complete, so its caller does not know about the loss.
    let isAnswered: Bool
}

extension AsyncSocketError {
    static let writesLost = AsyncSocketError(
        .closed, fault: .caller, operation: .write,
        message: "the connection closed before all written data was sent")
}
