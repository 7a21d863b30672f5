public import FoundationEssentials
internal import SocketCore

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
    ///   - tag: Comes back with the data.
    public func readData(withTimeout timeout: TimeInterval, tag: Int) {
        enqueue(ReadPacket(goal: .anyBytes, timeout: timeout, tag: tag))
    }

    /// Reads the first bytes there are, at most `maxLength`.
    ///
    /// - Parameters:
    ///   - timeout: Seconds; negative: no limit.
    ///   - maxLength: More than zero; otherwise the connection ends with `.badParameter`.
    ///   - tag: Comes back with the data.
    public func readData(withTimeout timeout: TimeInterval, maxLength: Int, tag: Int) {
        guard maxLength > 0 else { return refuse("read", "maxLength must be more than zero, and is \(maxLength)") }
        enqueue(ReadPacket(goal: .anyBytes, maxLength: maxLength, timeout: timeout, tag: tag))
    }

    /// Reads exactly `length` bytes.
    ///
    /// - Parameters:
    ///   - length: Zero completes with no bytes when its turn comes; a negative number ends the connection with `.badParameter`.
    ///   - timeout: Seconds; negative: no limit.
    ///   - tag: Comes back with the data.
    public func readData(toLength length: Int, withTimeout timeout: TimeInterval, tag: Int) {
        guard length >= 0 else { return refuse("read", "the length must not be negative, and is \(length)") }
        enqueue(ReadPacket(goal: .length(length), timeout: timeout, tag: tag))
    }

    /// Reads up to and including the first occurrence of `delimiter`.
    ///
    /// Without a limit the peer decides how much memory the read takes: use `readData(to:withTimeout:maxLength:tag:)` towards peers that you do not trust.
    ///
    /// - Parameters:
    ///   - delimiter: At least one byte; otherwise the connection ends with `.badParameter`. Part of the data that is delivered.
    ///   - timeout: Seconds; negative: no limit.
    ///   - tag: Comes back with the data.
    public func readData(to delimiter: Data, withTimeout timeout: TimeInterval, tag: Int) {
        readData(to: delimiter, withTimeout: timeout, maxLength: .max, tag: tag)
    }

    /// Reads up to and including the first occurrence of `delimiter`, at most `maxLength` bytes.
    ///
    /// When so many bytes are there without the delimiter the connection ends with `.readMaxedOut`. A delimiter that ends exactly at `maxLength` is found.
    ///
    /// - Parameters:
    ///   - delimiter: At least one byte and at most `maxLength`; otherwise the connection ends with `.badParameter`.
    ///   - timeout: Seconds; negative: no limit.
    ///   - maxLength: The most bytes that are delivered, the delimiter among them.
    ///   - tag: Comes back with the data.
    public func readData(to delimiter: Data, withTimeout timeout: TimeInterval, maxLength: Int, tag: Int) {
        guard !delimiter.isEmpty else { return refuse("read", "a delimiter has at least one byte") }
        guard delimiter.count <= maxLength else { return refuse("read", "the delimiter is longer than maxLength, \(maxLength)") }
        enqueue(ReadPacket(goal: .delimiter(delimiter), maxLength: maxLength, timeout: timeout, tag: tag))
    }

    private func enqueue(_ packet: ReadPacket) {
        connection?.post(.read(packet))
    }

    private func refuse(_ operation: String, _ message: String) {
        connection?.post(.fail(.badParameter(operation, message)))
    }
}
