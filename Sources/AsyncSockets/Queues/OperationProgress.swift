/// The progress of an incomplete read or write: a snapshot.
public struct OperationProgress: Sendable, Hashable {
    /// The tag that you gave the operation.
    public let tag: Int
    /// The bytes that have arrived, or that the kernel or, on a secure connection, TLS has taken.
    public let bytesDone: Int
    /// The bytes of the whole operation; nil for a read whose length is not known in advance.
    public let total: Int?

    package init(tag: Int, bytesDone: Int, total: Int?) {
        self.tag = tag
        self.bytesDone = bytesDone
        self.total = total
    }

    /// The part that is done, from 0 to 1; nil when the total is not known.
    public var fraction: Double? {
        guard let total else { return nil }
        return total == 0 ? 1 : Double(bytesDone) / Double(total)
    }
}
