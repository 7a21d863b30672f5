/// A snapshot of the progress of an incomplete read or write.
public struct OperationProgress: Sendable, Hashable {
    /// The tag of the operation.
    public let tag: Int
    /// The number of bytes that have arrived or, for a write, that have been passed to the kernel or to TLS.
    public let bytesDone: Int
    /// The total number of bytes, or `nil` for a read of unknown length.
    public let total: Int?

    package init(tag: Int, bytesDone: Int, total: Int?) {
        self.tag = tag
        self.bytesDone = bytesDone
        self.total = total
    }

    /// The completed fraction, from 0 to 1, or `nil` if the total is unknown.
    public var fraction: Double? {
        guard let total else { return nil }
        return total == 0 ? 1 : Double(bytesDone) / Double(total)
    }
}
