internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// The receiving half of a connection: the queued reads, the bytes that are buffered for reads, and the timer
/// of the oldest read.
///
/// A class, so that the connection may access one part while it uses another. Exclusivity is not checked at
/// run time; the turn ensures it.
final class ReadHalf {
    // The queued reads. The type is in this module because each access from another module would check
    // exclusivity at run time.
    @exclusivity(unchecked) var packets = WaitingPackets<ReadPacket>()
    /// Bytes that were received and, with TLS, decrypted, but not taken by a read yet.
    let preBuffer = PreBuffer()

    /// The maximum number of bytes to read ahead of any request. Reading ahead is needed to detect a FIN.
    static let readAheadLimit = 64 * 1024

    /// The possible lengths of a peek: more bytes are not read ahead.
    static let peekLengths = 1...readAheadLimit

    init() {}

    enum Front {
        case read
        case startTLS
        case nothing
    }

    enum Answer {
        /// The read is complete and was removed from the queue.
        case complete(Data, Completion<Data>)
        case incomplete
        /// The read reached its limit of this many bytes without finding the delimiter or the end of the
        /// stream.
        case maxedOut(Int)
        /// The read failed and was removed from the queue.
        case failed(any Error, Completion<Data>)
    }

    // MARK: - The queue

    /// Whether a task has a pending read. Reads that have been served are no longer queued.
    var hasWaiter: Bool {
        var found = false
        packets.forEach { if case .waiter = $0.pointee.completion { found = true } }
        return found
    }

    var front: Front {
        if packets.front != nil { return .read }
        return packets.isAtStartTLS ? .startTLS : .nothing
    }

    /// Removes `waiter`'s read and returns its collected bytes to the front of the buffer.
    func cancel(_ waiter: AnyObject) -> Cancellation<Data> {
        guard let (index, read) = packets.find(waiter) else { return .tooLate }
        let completion = read.pointee.completion
        read.pointee.putBack(into: preBuffer)
        packets.remove(at: index)
        return .removed(completion)
    }

    // MARK: - Bytes

    var wantsBytes: Bool {
        switch front {
        case .read: true
        case .startTLS: false
        case .nothing: preBuffer.count < Self.readAheadLimit
        }
    }

    var room: Int {
        packets.isEmpty ? Self.readAheadLimit - preBuffer.count : Self.readAheadLimit
    }

    /// Whether bytes are buffered and no read is queued. Such bytes are kept even if the connection fails.
    var hasUnreadBytes: Bool {
        !preBuffer.isEmpty && front == .nothing
    }

    /// Whether the read at the front could be served: either bytes are buffered or the read needs no bytes.
    var mayServe: Bool {
        !preBuffer.isEmpty || packets.front?.pointee.wantsNothing == true
    }

    /// Removes the read at the front and returns its tag, if the read lends its bytes to a delegate and any
    /// bytes are buffered. The caller must deliver all bytes in `preBuffer`.
    @inline(__always)
    func takeLoan() -> Int? {
        guard let read = packets.front, read.pointee.isLoan, !preBuffer.isEmpty else { return nil }
        let tag = read.pointee.completion.tag
        packets.removeFront()
        return tag
    }

    /// Serves the read at the front from `preBuffer`. Returns `nil` if no read is queued, or if the read
    /// needs bytes and the buffer is empty.
    func serve() -> Answer? {
        guard let read = packets.front, !preBuffer.isEmpty || read.pointee.wantsNothing else { return nil }
        switch read.pointee.take(from: preBuffer) {
        case .complete(let data):
            let completion = read.pointee.completion
            packets.removeFront()
            return .complete(data, completion)
        case .incomplete: return .incomplete
        case .maxedOut: return .maxedOut(read.pointee.maxLength)
        case .failed(let error):
            let completion = read.pointee.completion
            packets.removeFront()
            return .failed(error, completion)
        }
    }

    func wantsNothing(_ goal: ReadPacket.Goal) -> Bool {
        if case .length(0) = goal { true } else { false }
    }

    /// Serves a read that is not queued, if the queue is empty. Returns `nil`, without taking any bytes, if
    /// the read must wait.
    func serveAtOnce(_ read: inout ReadPacket) -> Answer? {
        guard packets.isEmpty, !preBuffer.isEmpty || read.wantsNothing, read.takesAllOrNothing(of: preBuffer) else {
            return nil
        }
        switch read.take(from: preBuffer) {
        case .complete(let data): return .complete(data, .answered)
        case .incomplete: return nil
        case .maxedOut: return .maxedOut(read.maxLength)
        case .failed(let error): return .failed(error, .answered)
        }
    }

    /// The length of the next line including its line feed, or `nil` if it has not arrived completely, or if
    /// a read is queued.
    var lengthOfLine: Int? {
        guard packets.isEmpty else { return nil }
        preBuffer.restartSearch()
        return preBuffer.endOfLine()
    }

    var isAtReadToEnd: Bool {
        packets.front?.pointee.isToEnd ?? false
    }

    /// Completes the read at the front if it is a read to the end of the stream. Called after the peer has
    /// closed the stream cleanly.
    func finishReadToEnd() -> (data: Data, completion: Completion<Data>)? {
        guard isAtReadToEnd, let read = packets.front else { return nil }
        let result = (read.pointee.finish(), read.pointee.completion)
        packets.removeFront()
        return result
    }

    /// Gives up the read at the front and returns the bytes received so far.
    func abandon() -> (bytesSoFar: Data, completion: Completion<Data>)? {
        guard let read = packets.front else { return nil }
        let result = (read.pointee.takeIncomplete(from: preBuffer), read.pointee.completion)
        packets.removeFront()
        return result
    }

    /// Gives up the read at the front if a waiter requested it. The waiter's error carries no bytes, so bytes
    /// already collected are kept for the next read.
    func withdrawWaiters() -> Completion<Data>? {
        guard let read = packets.front, !read.pointee.completion.isDelegates else { return nil }
        let completion = read.pointee.completion
        read.pointee.putBack(into: preBuffer)
        packets.removeFront()
        return completion
    }

    /// Whether `withdrawWaiters()` would return bytes to the buffer for a later read. Always `false` if
    /// `startTLS` is queued, because it would reject such bytes.
    var wouldLeaveBytes: Bool {
        guard !packets.hasStartTLS, let read = packets.front, !read.pointee.completion.isDelegates else { return false }
        return read.pointee.bytesDone(in: preBuffer) > 0
    }

    // MARK: - Progress

    /// Returns the number of bytes that have arrived for the read at the front since the last call, and its
    /// tag. Returns `nil` if no bytes have arrived or the read does not belong to a delegate.
    func takeProgress() -> (count: Int, tag: Int)? {
        guard let read = packets.front, let count = read.pointee.newProgress(in: preBuffer) else { return nil }
        guard case .delegate(let tag) = read.pointee.completion else { return nil }
        return (count, tag)
    }

    /// The progress of the read at the front, or `nil` if no read is queued.
    var progress: OperationProgress? {
        packets.front?.pointee.progress(in: preBuffer)
    }

    // MARK: - Time

    func takeLate(at now: Deadline) -> LateOperation? {
        let progress = progress
        return packets.takeLate(at: now, progress)
    }
}
