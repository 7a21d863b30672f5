/// How far a read or a write has come that is not complete yet: a snapshot.
public struct OperationProgress: Sendable, Hashable {
    /// The tag that the operation was given.
    public let tag: Int
    /// Bytes that have arrived, or that have been handed to the kernel or, on a secure connection, encrypted.
    public let bytesDone: Int
    /// All bytes of the operation; nil for a read whose length is not known beforehand.
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
