internal import FoundationEssentials
internal import Glibc
internal import SocketBuffers
internal import SocketCore

/// The sending half of a connection: the writes that wait, the clock of the oldest, and how full the queue
/// is.
///
/// A packet passes two marks: its last byte is *handed on* (to the kernel, or to the TLS engine), and then it
/// is *complete* (nothing of it waits in this process any more). A class for the same reason as `ReadHalf`.
final class WriteHalf {
    /// The writes that wait. Here they are added and removed, since their bytes are counted.
    @exclusivity(unchecked) var packets = WaitingPackets<WritePacket>()
    // In an order that takes little room: every connection has one of these.

    @exclusivity(unchecked) private var handedOn: UInt32 = 0
    @exclusivity(unchecked) private var closing = false
    /// Tasks wait, or have waited, for writes in memory.
    @exclusivity(unchecked) private var hasWaiters = false
    @exclusivity(unchecked) private var highWater = HighWaterMark()
    @exclusivity(unchecked) private var allWaiting = 0
    /// Those of the waiting bytes that are in files, and use no memory.
    @exclusivity(unchecked) private var fileWaiting = 0
    /// Small writes that count as complete, behind all packets; nil: none.
    @exclusivity(unchecked) private var collected: CollectedWrites?

    /// How many packets at the front are handed on whole and not yet complete.
    private var handedOnCount: Int {
        get { Int(handedOn) }
        set { handedOn = UInt32(truncatingIfNeeded: newValue) }
    }

    /// The bytes of all packets that are not handed on.
    var waitingByteCount: Int { allWaiting }
    /// The caller wants to write nothing after what is queued.
    var isClosing: Bool { closing }

    var isAboveHighWater: Bool { highWater.isAbove }

    /// Those of the waiting bytes that are in memory.
    var waitingMemoryByteCount: Int { waitingByteCount - fileWaiting }

    init() {}

    func close() {
        closing = true
    }

    var isEmpty: Bool { packets.isEmpty && collected == nil }
    /// The progress of the oldest incomplete write; nil when no write waits.
    var progress: OperationProgress? {
        guard let write = packets.front else { return nil }
        return OperationProgress(tag: write.pointee.completion.tag, bytesDone: write.pointee.handedOn, total: write.pointee.count)
    }

    /// How far the writes have come: the same as before when no byte has left since.
    struct Position: Equatable, Sendable {
        fileprivate let operation: UInt32
        fileprivate let byteCount: Int
    }

    var position: Position {
        Position(operation: packets.number, byteCount: packets.front?.pointee.handedOn ?? 0)
    }

    /// False, and nothing has changed, when more bytes would wait than an `Int` counts: files need no memory,
    /// and may be of any size.
    @discardableResult
    func append(_ packet: consuming WritePacket) -> Bool {
        let (sum, isTooMuch) = waitingByteCount.addingReportingOverflow(packet.count)
        guard !isTooMuch else { return false }
        if collected != nil { packCollected() }
        allWaiting = sum
        if packet.isFile { fileWaiting += packet.count }
        if packet.completion.isWaiters { hasWaiters = true }
        packets.append(consume packet)
        return true
    }

    /// Adds a write to an empty queue whose bytes are handed on already, but wait in the channel.
    func appendHandedOn(_ completion: Completion<Void>) {
        append(WritePacket(data: Data(), timeout: -1, completion: completion, isBegun: true))
        handedOnCount += 1
    }

    /// Copies the bytes of a write that counts as complete. They follow what is queued, once
    /// `packCollected()` is called.
    ///
    /// - Parameter timeout: The seconds that they may wait from then on; negative: no limit.
    func collect(_ bytes: UnsafeRawBufferPointer, timeout: Double) {
        let writes = collected ?? CollectedWrites()
        collected = writes
        writes.append(bytes, timeout: timeout)
        allWaiting += bytes.count
    }

    /// Makes what was collected one write of the queue.
    func packCollected() {
        if let writes = collected.take() { packets.append(writes.makePacket()) }
    }

    func appendStartTLS() {
        packCollected()
        packets.appendStartTLS()
    }

    /// Gives up the oldest write and returns its completion; nil when no write waits.
    func drop() -> Completion<Void>? {
        packCollected()
        handedOnCount = 0
        allWaiting = 0
        fileWaiting = 0
        return packets.drop()?.completion
    }

    /// Removes the write of `waiter`, or detaches it when some of its bytes are on their way.
    func cancel(_ waiter: AnyObject) -> Cancellation<Void> {
        guard let (index, write) = packets.find(waiter) else { return .tooLate }
        let completion = write.pointee.completion
        guard !write.pointee.isBegun else {
            write.pointee.detach()
            return .detached(completion)
        }
        allWaiting -= write.pointee.count
        if write.pointee.file != nil { fileWaiting -= write.pointee.count }
        packets.remove(at: index)
        return .removed(completion)
    }

    /// The file that is to be handed on next, and how much of it; nil when bytes are next, or nothing.
    var nextFile: (region: FileRegion, position: Int, remaining: Int)? {
        guard let write = packets.packet(at: handedOnCount), let region = write.pointee.file else { return nil }
        return (region, write.pointee.handedOn, write.pointee.remaining)
    }

    /// Gives `body` the bytes to hand on next: of one packet, or of as many small ones together as fit into
    /// `limit` bytes up to the next marker or file. Nothing is delayed: only what is queued already is put
    /// together.
    ///
    /// For the TLS engine, which copies them anyway.
    ///
    /// - Parameter alone: The most bytes of a packet that goes alone.
    /// - Returns: false when there are none.
    // `body` returns nothing: a generic result would have each call look types up at run time.
    func withNextBytes(
        limit: Int, alone: Int, _ body: (UnsafeRawBufferPointer) -> Void
    ) -> Bool {
        guard let next = packets.packet(at: handedOnCount) else { return false }
        guard next.pointee.remaining < limit, packets.packet(at: handedOnCount + 1) != nil else {
            return WritePacket.withRemainingBytes(of: next, limit: alone, body)
        }
        let scratch = PreBuffer()
        var offset = handedOnCount
        while scratch.count < limit, let write = packets.packet(at: offset) {
            guard WritePacket.withRemainingBytes(of: write, limit: limit - scratch.count, { scratch.append($0) }) else { break }
            offset += 1
        }
        guard !scratch.isEmpty else { return false }
        body(scratch.readableBytes)
        scratch.reset()
        return true
    }

    /// Gives `body` the bytes to hand on next, at most `limit`, up to the next marker or file: each write
    /// where it lies, and the first run of small ones put together. The rest is for the next call.
    ///
    /// - Returns: false, without having called `body`, when there are none.
    func withNextParts(limit: Int, _ body: (UnsafeBufferPointer<iovec>) -> Void) -> Bool {
        guard limit > 0, let next = packets.packet(at: handedOnCount), next.pointee.file == nil else { return false }
        if packets.packet(at: handedOnCount + 1) == nil {
            return WritePacket.withRemainingBytes(of: next, limit: limit) { bytes in
                var part = iovec(bytes)
                withUnsafePointer(to: &part) { body(UnsafeBufferPointer(start: $0, count: 1)) }
            }
        }
        withUnsafeTemporaryAllocation(of: iovec.self, capacity: Self.partLimit) { room in
            addPart(at: handedOnCount, to: room, 0, limit: limit, mayGather: true, body)
        }
        return true
    }

    /// Notes that the first `count` of the bytes that `withNextBytes` or `withNextParts` gave, or of the next
    /// file, were taken.
    func handOn(_ count: Int) {
        allWaiting -= count
        var left = count
        while left > 0, let write = packets.packet(at: handedOnCount) {
            let step = min(left, write.pointee.remaining)
            write.pointee.handOn(step)
            if let file = write.pointee.file {
                fileWaiting -= step
                file.noteHandedOn(step)
            }
            left -= step
            if write.pointee.remaining == 0 { handedOnCount += 1 }
        }
    }

    /// The bytes of the packet at the front that were handed on since the last call, and its tag; nil when
    /// there are none, or when the write is not a delegate's.
    func takeProgress() -> (count: Int, tag: Int)? {
        guard let write = packets.front, let count = write.pointee.takeProgress() else { return nil }
        guard case .delegate(let tag) = write.pointee.completion else { return nil }
        return (count, tag)
    }

    /// Removes the oldest packet when all its bytes were handed on, and returns its completion.
    func removeHandedOn() -> Completion<Void>? {
        guard handedOnCount > 0, let completion = packets.front?.pointee.completion else { return nil }
        packets.removeFront()
        handedOnCount -= 1
        return completion
    }

    // MARK: - How full

    /// The bytes that wait, once, when they have reached `mark`.
    func takeHighWater(_ mark: Int?) -> Int? { highWater.takeHigh(waitingByteCount, mark) }

    /// The bytes that wait, once, when they are down to half of `mark`.
    func takeLowWater(_ mark: Int?) -> Int? { highWater.takeLow(waitingByteCount, mark) }

    /// True when `count` more bytes would be too many. Bytes that can be sent do not count, nor do files, and
    /// one write alone is never too much.
    func wouldExceed(_ limit: Int, with count: Int) -> Bool {
        waitingMemoryByteCount > 0 && count > limit - waitingMemoryByteCount - overhead
    }

    /// The memory of the packets themselves. The first packets do not count, so that a small limit can be
    /// chosen by the size of the data.
    private var overhead: Int { max(0, packets.count - Self.uncountedPackets) * MemoryLayout<WritePacket>.stride }

    static let uncountedPackets = 1024

    /// True when fewer bytes than `mark` would wait with the bytes of `packet`: its task need not wait for
    /// them. For a file it does: what is not sent yet can still be changed.
    func isBelow(_ mark: Int?, with packet: borrowing WritePacket) -> Bool {
        guard let mark, !packet.isFile else { return false }
        return waitingMemoryByteCount < mark && packet.count < mark - waitingMemoryByteCount
    }

    /// A waiter for the high-water mark, if fewer bytes wait now; nil when there are no more.
    func takeWaiter(below mark: Int?) -> (any OperationWaiter<Void>)? {
        guard hasWaiters, let mark, waitingMemoryByteCount < mark else { return nil }
        let index = packets.firstIndex { !$0.pointee.isFile && $0.pointee.completion.isWaiters }
        if let index { return packets.anyPacket(at: index)?.pointee.takeWaiter() }
        hasWaiters = false
        return nil
    }

    // MARK: - Time

    /// The oldest write, when it has taken too long, once.
    func takeLate(at now: Deadline) -> LateOperation? {
        let progress = progress
        return packets.takeLate(at: now, progress)
    }

    // MARK: - Parts

    /// The most parts that are given at a time: with writes of 4 KiB they make up 256.
    private static var partLimit: Int { 64 }
    /// To copy less than this costs no more than a part of its own.
    private static var smallLimit: Int { 4096 }
    /// The most bytes that are put together: no more than a block holds, which therefore never moves.
    private static var gatherLimit: Int { 64 * 1024 }

    /// Adds the writes from `offset` on to the `count` parts that there are, and then calls `body`.
    private func addPart(
        at offset: Int, to room: UnsafeMutableBufferPointer<iovec>, _ count: Int, limit: Int, mayGather: Bool,
        _ body: (UnsafeBufferPointer<iovec>) -> Void
    ) {
        guard count < room.count, limit > 0, let write = packets.packet(at: offset), write.pointee.file == nil else {
            return body(UnsafeBufferPointer(rebasing: room[..<count]))
        }
        if mayGather, limit >= Self.smallLimit, smallWrite(at: offset) != nil, smallWrite(at: offset + 1) != nil {
            let scratch = PreBuffer()
            let end = gather(from: offset, into: scratch, limit: min(limit, Self.gatherLimit))
            room[count] = iovec(scratch.readableBytes)
            // More small ones are for the next call: what is put together is sent while it is in the
            // processor's cache.
            let left = smallWrite(at: end) == nil ? limit - scratch.count : 0
            addPart(at: end, to: room, count + 1, limit: left, mayGather: false, body)
            scratch.reset()
        } else {
            _ = WritePacket.withRemainingBytes(of: write, limit: limit) { bytes in
                room[count] = iovec(bytes)
                addPart(at: offset + 1, to: room, count + 1, limit: limit - bytes.count, mayGather: mayGather, body)
            }
        }
    }

    private func smallWrite(at offset: Int) -> UnsafeMutablePointer<WritePacket>? {
        guard let write = packets.packet(at: offset), write.pointee.remaining < Self.smallLimit, write.pointee.file == nil else {
            return nil
        }
        return write
    }

    /// Appends small writes, each as a whole; returns the position of the first that was left out.
    private func gather(from offset: Int, into scratch: PreBuffer, limit: Int) -> Int {
        var offset = offset
        while let write = smallWrite(at: offset), scratch.count + write.pointee.remaining <= limit {
            _ = WritePacket.withRemainingBytes(of: write, limit: Self.smallLimit) { scratch.append($0) }
            offset += 1
        }
        return offset
    }
}

/// Writes that are to leave together. An object of its own, since an idle connection has none.
private final class CollectedWrites {
    private let buffer = PreBuffer()
    /// The shortest of their times.
    @exclusivity(unchecked) private var timeout = -1.0

    func append(_ bytes: UnsafeRawBufferPointer, timeout: Double) {
        buffer.append(bytes)
        if timeout >= 0 { self.timeout = self.timeout < 0 ? timeout : min(self.timeout, timeout) }
    }

    func makePacket() -> WritePacket {
        WritePacket(data: Data(buffer.readableBytes), timeout: timeout, completion: .answered)
    }
}

extension iovec {
    fileprivate init(_ bytes: UnsafeRawBufferPointer) {
        self.init(iov_base: UnsafeMutableRawPointer(mutating: bytes.baseAddress), iov_len: bytes.count)
    }
}

extension WritePacket {
    /// False for a file. A method of the packet would be called with a copy of it.
    fileprivate static func withRemainingBytes(
        of packet: UnsafeMutablePointer<WritePacket>, limit: Int, _ body: (UnsafeRawBufferPointer) -> Void
    ) -> Bool {
        guard packet.pointee.file == nil else { return false }
        let (start, count) = (packet.pointee.handedOn, min(packet.pointee.remaining, limit))
        packet.pointee.bytes.withUnsafeBytes {
            body(UnsafeRawBufferPointer(start: $0.baseAddress.map { $0 + start }, count: count))
        }
        return true
    }
}
