public import FoundationEssentials
internal import SocketBuffers
public import SocketCore

// Reads are served in the order in which they were queued, each as soon as it has what it asked for, with `socket(_:didRead:withTag:)`.
//
// They may be queued before the connection stands. A read on a socket that is not in use is dropped. Its timeout counts from the moment it is
// the oldest read that is not complete; what happens then is for `socket(_:shouldTimeoutReadWithTag:elapsed:bytesDone:)` to say. Bytes that no read
// has taken stay where they are.
extension AsyncSocket {
    /// Reads the first bytes there are, whatever their number.
    ///
    /// - Parameters:
    ///   - timeout: Seconds; negative: no limit.
    ///   - buffer: Where to put the bytes; nil: in memory of the read's own.
    ///   - offset: Where in `buffer` to put them, from 0 to its `count`; otherwise the connection ends with `.badParameter`.
    ///   - maxLength: The most bytes to deliver, more than zero; otherwise the connection ends with `.badParameter`. Nil: no limit.
    ///   - tag: Comes back with the data.
    public func readData(
        withTimeout timeout: TimeInterval, buffer: ReadBuffer? = nil, bufferOffset offset: Int = 0, maxLength: Int? = nil,
        tag: Int
    ) {
        if let maxLength, maxLength <= 0 { return refuse("maxLength must be more than zero, and is \(maxLength)") }
        enqueue(.anyBytes, maxLength: maxLength, timeout, tag, buffer, offset)
    }

    /// Reads exactly `length` bytes.
    ///
    /// - Parameters:
    ///   - length: Zero completes with no bytes when its turn comes; a negative number ends the connection with `.badParameter`. Memory is
    ///     used for the bytes that have come, not for those that were announced.
    ///   - timeout: Seconds; negative: no limit.
    ///   - buffer: Where to put the bytes; nil: in memory of the read's own.
    ///   - offset: Where in `buffer` to put them, from 0 to its `count`; otherwise the connection ends with `.badParameter`.
    ///   - tag: Comes back with the data.
    public func readData(
        toLength length: Int, withTimeout timeout: TimeInterval, buffer: ReadBuffer? = nil, bufferOffset offset: Int = 0, tag: Int
    ) {
        guard length >= 0 else { return refuse("the length must not be negative, and is \(length)") }
        enqueue(.length(length), maxLength: nil, timeout, tag, buffer, offset)
    }

    /// Reads up to and including the first occurrence of `delimiter`.
    ///
    /// With `maxLength`, the connection ends with `.readMaxedOut` when so many bytes are there without the delimiter; a delimiter that ends exactly at
    /// `maxLength` is found. Without it the peer decides how much memory the read takes: set it towards peers that you do not trust.
    ///
    /// - Parameters:
    ///   - delimiter: At least one byte and at most `maxLength`; otherwise the connection ends with `.badParameter`. Part of the data that is delivered.
    ///   - timeout: Seconds; negative: no limit.
    ///   - buffer: Where to put the bytes; nil: in memory of the read's own.
    ///   - offset: Where in `buffer` to put them, from 0 to its `count`; otherwise the connection ends with `.badParameter`.
    ///   - maxLength: The most bytes that are delivered, the delimiter among them; nil: no limit.
    ///   - tag: Comes back with the data.
    public func readData(
        to delimiter: Data, withTimeout timeout: TimeInterval, buffer: ReadBuffer? = nil, bufferOffset offset: Int = 0,
        maxLength: Int? = nil, tag: Int
    ) {
        guard !delimiter.isEmpty else { return refuse("a delimiter has at least one byte") }
        if let maxLength, delimiter.count > maxLength { return refuse("the delimiter is longer than maxLength, \(maxLength)") }
        enqueue(.delimiter(delimiter), maxLength: maxLength, timeout, tag, buffer, offset)
    }

    /// How far the oldest read has come that is not complete; nil when none is queued. In a callback without a delegate
    /// queue as it is there; elsewhere a snapshot, from the end of the last turn on the event loop: the read may be further by now.
    public var readProgress: OperationProgress? {
        connection?.progress.read
    }

    private func enqueue(
        _ goal: ReadPacket.Goal, maxLength: Int?, _ timeout: TimeInterval, _ tag: Int, _ buffer: ReadBuffer?, _ offset: Int
    ) {
        if let buffer, !(0...buffer.count).contains(offset) {
            return refuse("the offset \(offset) lies outside of the buffer, which has \(buffer.count) bytes")
        }
        let target = buffer.map { (buffer: $0, offset: offset) }
        withConnection { $0.read(ReadPacket(goal: goal, maxLength: maxLength, timeout: timeout, tag: tag, target: target)) }
    }

    private func refuse(_ message: String) {
        connection?.post(.fail(.badParameter("read", message)))
    }
}
