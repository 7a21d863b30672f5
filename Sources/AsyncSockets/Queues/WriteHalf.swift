internal import FoundationEssentials
internal import Glibc
internal import SocketBuffers
internal import SocketCore

/// The sending half of a connection: the queued writes, the timer of the oldest write, and the fill level of
/// the queue.
///
/// A packet reaches two milestones. It is *handed on* when its last byte has been passed to the kernel or to
/// the TLS engine. It is *complete* when none of its bytes are buffered in this process. A class for the same
/// reason as `ReadHalf`.
final class WriteHalf {
    /// The queued writes. Writes are added and removed only by this class, which counts their bytes.
    @exclusivity(unchecked) var packets = WaitingPackets<WritePacket>()
    // Ordered to minimize the size: every connection has an instance.

    @exclusivity(unchecked) private var handedOn: UInt32 = 0
    @exclusivity(unchecked) private var closing = false
    /// Whether writes with waiters may be queued.
    @exclusivity(unchecked) private var hasWaiters = false
    @exclusivity(unchecked) private var highWater = HighWaterMark()
    @exclusivity(unchecked) private var allWaiting = 0
    /// How many of the waiting bytes are in files and use no memory.
    @exclusivity(unchecked) private var fileWaiting = 0
    /// Small writes to be sent together after all packets, or `nil`. Writes of tasks have been reported as
    /// complete.
    @exclusivity(unchecked) private var collected: CollectedWrites?

    /// How many packets at the front are completely handed on but not complete.
    private var handedOnCount: Int {
        get { Int(handedOn) }
        set { handedOn = UInt32(truncatingIfNeeded: newValue) }
    }

    /// The bytes of all packets that have not been handed on.
    var waitingByteCount: Int { allWaiting }
    /// Whether no more writes may follow the queued writes.
    var isClosing: Bool { closing }

    var isAboveHighWater: Bool { highWater.isAbove }

    var waitingMemoryByteCount: Int { waitingByteCount - fileWaiting }

    init() {}

    func close() {
        closing = true
    }

    var isEmpty: Bool { packets.isEmpty && collected == nil }
    /// The progress of the oldest incomplete write, or `nil` if no write is queued.
    var progress: OperationProgress? {
        guard let write = packets.front else {
            return collected?.parts.first.map { OperationProgress(tag: $0.tag, bytesDone: 0, total: $0.count) }
        }
        return OperationProgress(tag: write.pointee.completion.tag, bytesDone: write.pointee.handedOn, total: write.pointee.count)
    }

    /// A position in the sequence of writes. It changes when bytes are handed on or a write is removed.
    struct Position: Equatable, Sendable {
        fileprivate let operation: UInt32
        fileprivate let byteCount: Int
    }

    var position: Position {
        Position(operation: packets.number, byteCount: packets.front?.pointee.handedOn ?? 0)
    }

    /// Returns `false`, without changing anything, if the number of waiting bytes would overflow an `Int`.
    /// This is possible because files use no memory and may have any size.
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

    /// Adds a write to an empty queue. Its bytes have already been handed on but are still buffered in the
    /// channel.
    func appendHandedOn(_ completion: Completion<Void>) {
        append(WritePacket(data: Data(), timeout: -1, completion: completion, isBegun: true))
        handedOnCount += 1
    }

    /// Copies the bytes of a write that is treated as complete. `packCollected()` appends them to the queue.
    ///
    /// - Parameter timeout: How many seconds the bytes may wait after that. A negative value means no limit.
    func collect(_ bytes: UnsafeRawBufferPointer, _ more: UnsafeRawBufferPointer?, timeout: Double) {
        if isCollectingForDelegate { packCollected() }
        if collected == nil { collected = CollectedWrites() }
        openCollected?._withUnsafeGuaranteedRef { $0.append(bytes, more, timeout: timeout) }
        allWaiting += bytes.count + (more?.count ?? 0)
    }

    /// The collected writes without a counted reference.
    private var openCollected: Unmanaged<CollectedWrites>? { collected.map(Unmanaged.passUnretained) }

    private var isCollectingForDelegate: Bool { collected.map { !$0.parts.isEmpty } ?? false }

    /// Copies a delegate's write into the buffer of joined writes. Returns `false` before there is a buffer
    /// or if it is full.
    @inline(__always)
    func join(_ data: Data, timeout: Double, tag: Int) -> Bool {
        guard let writes = openCollected, !closing else { return false }
        let count = writes._withUnsafeGuaranteedRef { $0.join(data, timeout: timeout, tag: tag) }
        allWaiting += count
        return count > 0
    }

    /// If the queue holds exactly one write, moves it into a new buffer that other writes can join. It must
    /// be a small write by the delegate, unsent and without a running timeout. Returns whether writes may
    /// join.
    ///
    /// - Parameter limit: The maximum total size of the joined writes.
    func beginJoining(limit: Int) -> Bool {
        if collected != nil { return isCollectingForDelegate }
        guard !packets.hasStartTLS, packets.count == 1, let first = packets.front, !first.pointee.isBegun,
            let tag = first.pointee.joinableTag, !packets.hasStartedClock || first.pointee.timeout < 0
        else { return false }
        let writes = CollectedWrites(limit: limit)
        guard writes.join(first.pointee.bytes, timeout: first.pointee.timeout, tag: tag) > 0 else { return false }
        packets.removeFront()
        collected = writes
        return true
    }

    /// Passes the collected bytes to `send` while the queue is empty. If the kernel does not accept all of
    /// them, the writes are queued, and the first `count` bytes are marked as handed on.
    ///
    /// - Returns: The delegate's writes that are complete.
    func sendCollected(_ send: (UnsafeRawBufferPointer) -> (count: Int, isComplete: Bool)) -> [CollectedWrites.Part] {
        guard let writes = collected else { return [] }
        let (count, isComplete) = send(writes.bytes)
        if isComplete {
            collected = nil
            allWaiting -= count
            return writes.parts
        }
        packCollected()
        handOn(count)
        return []
    }

    /// Appends the collected writes to the queue: each write of the delegate, or all bytes of tasks as one.
    func packCollected() {
        collected.take()?.forEachPacket { packets.append($0) }
    }

    func appendStartTLS() {
        packCollected()
        packets.appendStartTLS()
    }

    /// Gives up the oldest write and returns its completion, or `nil` if no write is queued.
    func drop() -> Completion<Void>? {
        packCollected()
        handedOnCount = 0
        allWaiting = 0
        fileWaiting = 0
        return packets.drop()?.completion
    }

    /// Removes `waiter`'s write, or detaches it if some of its bytes have already been sent.
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

    /// The file to hand on next, with the position and the remaining length. `nil` if bytes are next or no
    /// write is queued.
    var nextFile: (region: FileRegion, position: Int, remaining: Int)? {
        guard let write = packets.packet(at: handedOnCount), let region = write.pointee.file else { return nil }
        return (region, write.pointee.handedOn, write.pointee.remaining)
    }

    /// Calls `body` with the bytes to hand on next. Small packets are combined up to `limit` bytes, stopping
    /// at the next marker or file. Only writes that are already queued are combined, so this adds no delay.
    ///
    /// For the TLS engine, which copies the bytes anyway.
    ///
    /// - Parameter alone: The maximum number of bytes if a single packet is passed.
    /// - Returns: `false` if nothing can be handed on.
    // `body` returns `Void`, because with a generic result each call would look up types at run time.
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

    /// Calls `body` with the bytes to hand on next, at most `limit`, stopping at the next marker or file.
    /// Writes are passed in place, except that the first run of small writes is combined. The rest is left
    /// for the next call.
    ///
    /// - Returns: `false`, without calling `body`, if nothing can be handed on.
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

    /// Records that `count` bytes have been handed on, from the start of the bytes passed by `withNextBytes`
    /// or `withNextParts`, or from the next file.
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

    /// Returns the number of bytes of the packet at the front that were handed on since the last call, and
    /// its tag. Returns `nil` if there is no progress, or if the write does not belong to a delegate.
    func takeProgress() -> (count: Int, tag: Int)? {
        guard let write = packets.front, let count = write.pointee.takeProgress() else { return nil }
        guard case .delegate(let tag) = write.pointee.completion else { return nil }
        return (count, tag)
    }

    /// Removes the oldest packet if all its bytes have been handed on, and returns its completion.
    func removeHandedOn() -> Completion<Void>? {
        guard handedOnCount > 0, let completion = packets.front?.pointee.completion else { return nil }
        packets.removeFront()
        handedOnCount -= 1
        return completion
    }

    // MARK: - Fill level

    func takeHighWater(_ mark: Int?) -> Int? { highWater.takeHigh(waitingByteCount, mark) }

    func takeLowWater(_ mark: Int?) -> Int? { highWater.takeLow(waitingByteCount, mark) }

    /// Whether `count` more bytes would exceed `limit`. Files are not counted, and a write is always allowed
    /// if no bytes are waiting in memory.
    func wouldExceed(_ limit: Int, with count: Int) -> Bool {
        waitingMemoryByteCount > 0 && count > limit - waitingMemoryByteCount - overhead
    }

    /// The memory used by the packets themselves. The first `uncountedPackets` packets are not counted, so
    /// that a small limit depends only on the size of the data.
    private var overhead: Int { max(0, packets.count - Self.uncountedPackets) * MemoryLayout<WritePacket>.stride }

    static let uncountedPackets = 1024

    /// Whether fewer than `mark` bytes would be waiting after `packet` is appended, so that the task that
    /// writes it can continue immediately. Always `false` for a file, because its unsent bytes can still
    /// change.
    func isBelow(_ mark: Int?, with packet: borrowing WritePacket) -> Bool {
        guard let mark, !packet.isFile else { return false }
        return waitingMemoryByteCount < mark && packet.count < mark - waitingMemoryByteCount
    }

    /// If fewer than `mark` bytes are waiting, returns the waiter of the oldest write with a waiter, except
    /// for files. Otherwise returns `nil`.
    func takeWaiter(below mark: Int?) -> (any OperationWaiter<Void>)? {
        guard hasWaiters, let mark, waitingMemoryByteCount < mark else { return nil }
        let index = packets.firstIndex { !$0.pointee.isFile && $0.pointee.completion.isWaiters }
        if let index { return packets.anyPacket(at: index)?.pointee.takeWaiter() }
        hasWaiters = false
        return nil
    }

    // MARK: - Time

    func takeLate(at now: Deadline) -> LateOperation? {
        let progress = progress
        return packets.takeLate(at: now, progress)
    }

    // MARK: - Parts

    /// The maximum number of parts per call. With writes of 4 KiB, this is 256 KiB.
    private static var partLimit: Int { 64 }
    /// The maximum number of bytes to combine: the size of one block, so the scratch buffer never has to
    /// grow.
    private static var gatherLimit: Int { 64 * 1024 }

    /// Adds the writes starting at `offset` after the `count` existing parts, and then calls `body`.
    private func addPart(
        at offset: Int, to room: UnsafeMutableBufferPointer<iovec>, _ count: Int, limit: Int, mayGather: Bool,
        _ body: (UnsafeBufferPointer<iovec>) -> Void
    ) {
        guard count < room.count, limit > 0, let write = packets.packet(at: offset), write.pointee.file == nil else {
            return body(UnsafeBufferPointer(rebasing: room[..<count]))
        }
        if mayGather, limit >= WritePacket.smallLimit, smallWrite(at: offset) != nil, smallWrite(at: offset + 1) != nil {
            let scratch = PreBuffer()
            let end = gather(from: offset, into: scratch, limit: min(limit, Self.gatherLimit))
            room[count] = iovec(scratch.readableBytes)
            // Further small writes are left for the next call, because the combined bytes should be sent
            // while they are still in the processor's cache.
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
        guard let write = packets.packet(at: offset), write.pointee.remaining < WritePacket.smallLimit, write.pointee.file == nil
        else {
            return nil
        }
        return write
    }

    /// Appends small writes, each as a whole. Returns the position of the first write that was not appended.
    private func gather(from offset: Int, into scratch: PreBuffer, limit: Int) -> Int {
        var offset = offset
        while let write = smallWrite(at: offset), scratch.count + write.pointee.remaining <= limit {
            _ = WritePacket.withRemainingBytes(of: write, limit: WritePacket.smallLimit) { scratch.append($0) }
            offset += 1
        }
        return offset
    }
}

extension iovec {
    fileprivate init(_ bytes: UnsafeRawBufferPointer) {
        self.init(iov_base: UnsafeMutableRawPointer(mutating: bytes.baseAddress), iov_len: bytes.count)
    }
}

extension WritePacket {
    /// Returns `false` for a file. Static, because a method would be called on a copy of the packet.
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
