internal import SocketCore

/// The bytes that a connection has carried.
struct CarriedBytes: Equatable, Sendable {
    /// Those for the reader; with TLS, decrypted.
    var received = 0
    /// Those of the writer; with TLS, before they were encrypted.
    var sent = 0
}

/// Reads and writes that went with the connection.
struct ConnectionLoss: Sendable {
    /// Nil when all that was written has left.
    var writes: LostWrites?
    /// Bytes lay unread.
    var hasBytes = false

    var isNothing: Bool { writes == nil && !hasBytes }

    /// A write is given up, for this reason.
    mutating func add(_ write: Completion<Void>, _ reason: AsyncSocketError) {
        let isAnswered = if case .answered = write { true } else { writes?.isAnswered ?? false }
        writes = LostWrites(error: reason, isAnswered: isAnswered)
    }
}

/// Writes that were given up.
struct LostWrites: Sendable {
    let error: AsyncSocketError
    /// One of them had its answer, so that its caller does not know.
    let isAnswered: Bool
}

extension AsyncSocketError {
    static let writesLost = AsyncSocketError(
        .closed, blame: .caller, operation: "write",
        message: "the connection was closed before everything written had been sent")
}
