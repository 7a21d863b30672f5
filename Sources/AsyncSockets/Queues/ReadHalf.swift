internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

/// The receiving half of a connection: the reads that wait, the bytes that wait for reads, and the clock of
/// the oldest read.
///
/// A class, so that the connection may use one part of it while another is in use. Exclusivity is not checked
/// at run time: the turn ensures it.
final class ReadHalf {
    // In this module: another one would check the exclusivity of each access at run time.
    /// The reads that wait.
    @exclusivity(unchecked) var packets = WaitingPackets<ReadPacket>()
    /// Bytes that were received (and decrypted) and that no read has taken yet.
    let preBuffer = PreBuffer()

    /// How many bytes are read ahead of any request, so that a FIN is noticed.
    static let readAheadLimit = 64 * 1024

    init() {}

    /// The front of the queue.
    enum Front {
        case read
        case startTLS
        case nothing
    }

    /// The result of the read at the front.
    enum Answer {
        /// The read is done, and gone from the queue.
        case complete(Data, Completion<Data>)
        case incomplete
        /// This many bytes came without the delimiter, or more came before the end.
        case maxedOut(Int)
        /// The read has failed, and is gone from the queue.
        case failed(any Error, Completion<Data>)
    }

    // MARK: - The queue

    /// True while a task waits in a read. A task that was served is gone.
    var hasWaiter: Bool {
        var found = false
        packets.forEach { if case .waiter = $0.pointee.completion { found = true } }
        return found
    }

    var front: Front {
        if packets.front != nil { return .read }
        return packets.isAtStartTLS ? .startTLS : .nothing
    }

    /// Removes the read of `waiter`. The bytes that it had collected go back to the front of the buffer.
    func cancel(_ waiter: AnyObject) -> Cancellation<Data> {
        guard let (index, read) = packets.find(waiter) else { return .tooLate }
        let completion = read.pointee.completion
        read.pointee.putBack(into: preBuffer)
        packets.remove(at: index)
        return .removed(completion)
    }

    // MARK: - Bytes

    /// True when the next bytes from the peer are wanted now.
    var wantsBytes: Bool {
        switch front {
        case .read: true
        case .startTLS: false
        case .nothing: preBuffer.count < Self.readAheadLimit
        }
    }

    /// How many bytes may be fetched into `preBuffer` now.
    var room: Int {
        packets.isEmpty ? Self.readAheadLimit - preBuffer.count : Self.readAheadLimit
    }

    /// True when bytes wait for a read: whatever becomes of the connection, they stay.
    var hasUnreadBytes: Bool {
        !preBuffer.isEmpty && front == .nothing
    }

    /// False when nothing can be served: no byte is there, and the read at the front, if there is one, wants
    /// some.
    var mayServe: Bool {
        !preBuffer.isEmpty || packets.front?.pointee.wantsNothing == true
    }

    /// Ends the read at the front, if its delegate borrows the bytes and there are some: all of `preBuffer`
    /// are for it. Returns its tag.
    @inline(__always)
    func takeLoan() -> Int? {
        guard let read = packets.front, read.pointee.isLoan, !preBuffer.isEmpty else { return nil }
        let tag = read.pointee.completion.tag
        packets.removeFront()
        return tag
    }

    /// Offers the read at the front what is in `preBuffer`; nil when no read is there, or nothing it could
    /// take.
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

    /// True for a read that no byte is needed for.
    func wantsNothing(_ goal: ReadPacket.Goal) -> Bool {
        if case .length(0) = goal { true } else { false }
    }

    /// Serves a read that is not queued, if no other waits; nil when it has to wait, and nothing was taken.
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

    /// True when the read at the front is complete with the end of the stream.
    var isAtReadToEnd: Bool {
        packets.front?.pointee.isToEnd ?? false
    }

    /// The stream has ended in good order: the read to the end that is at the front is complete.
    func finishReadToEnd() -> (data: Data, completion: Completion<Data>)? {
        guard isAtReadToEnd, let read = packets.front else { return nil }
        let result = (read.pointee.finish(), read.pointee.completion)
        packets.removeFront()
        return result
    }

    /// Gives up the read at the front, and takes what it has so far.
    func abandon() -> (bytesSoFar: Data, completion: Completion<Data>)? {
        guard let read = packets.front else { return nil }
        let result = (read.pointee.takeIncomplete(from: preBuffer), read.pointee.completion)
        packets.removeFront()
        return result
    }

    /// Gives up the read at the front, if a waiter has asked for it: its error brings no bytes, so what it
    /// has collected stays for the next one.
    func withdrawWaiters() -> Completion<Data>? {
        guard let read = packets.front, !read.pointee.completion.isDelegates else { return nil }
        let completion = read.pointee.completion
        read.pointee.putBack(into: preBuffer)
        packets.removeFront()
        return completion
    }

    /// True when `withdrawWaiters()` would leave bytes that a later read may have: `startTLS` would refuse
    /// them.
    var wouldLeaveBytes: Bool {
        guard !packets.hasStartTLS, let read = packets.front, !read.pointee.completion.isDelegates else { return false }
        return read.pointee.bytesDone(in: preBuffer) > 0
    }

    // MARK: - Progress

    /// The bytes that have come for the read at the front since the last call, and its tag; nil when there
    /// are none, or when the read is not a delegate's.
    func takeProgress() -> (count: Int, tag: Int)? {
        guard let read = packets.front, let count = read.pointee.newProgress(in: preBuffer) else { return nil }
        guard case .delegate(let tag) = read.pointee.completion else { return nil }
        return (count, tag)
    }

    /// The progress of the read at the front; nil when no read waits.
    var progress: OperationProgress? {
        packets.front?.pointee.progress(in: preBuffer)
    }

    // MARK: - Time

    /// The oldest read, when it has taken too long, once.
    func takeLate(at now: Deadline) -> LateOperation? {
        let progress = progress
        return packets.takeLate(at: now, progress)
    }
}
