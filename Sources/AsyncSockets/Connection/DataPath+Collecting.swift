internal import SocketBuffers
internal import SocketCore

// Writes that leave together, by the rules of `WriteCollector`.
extension DataPath {
    /// The most bytes that are collected.
    private static var collectionLimit: Int { 64 * 1024 }

    /// True when the code that runs may write more, and `count` bytes may wait for that.
    func mayCollect(_ count: Int) -> Bool {
        guard ending.intent == nil, !writes.isClosing, channel?.maySend == true else { return false }
        let limit = collectionLimit
        return count < limit && writes.waitingByteCount < limit - count
    }

    /// No more than the queue may hold without an event or an error.
    private var collectionLimit: Int {
        let mark = configuration.value.writeHighWaterMark ?? Self.collectionLimit
        return min(Self.collectionLimit, mark, configuration.value.maximumPendingWriteBytes.count)
    }

    /// Serves the reads with the bytes that are there, when that may lead to more writes. False when the
    /// bytes have to move.
    @inline(__always)
    func collects(_ fate: inout Fate) -> Bool {
        guard writes.waitingByteCount > 0, let code = events.collectingCode else { return false }
        guard code == .block || !reads.preBuffer.isEmpty, mayCollect(0) else { return false }
        isCollecting = true
        fate = serveReads()
        guard case .goesOn = fate else { return true }
        if case .read = reads.front { return false }
        return code != .delivery || !events.isEmpty
    }

    /// Takes a write that counts as complete.
    ///
    /// - Parameter timeout: The seconds that its bytes may wait for the kernel; negative: no limit.
    func collect(_ bytes: UnsafeRawBufferPointer, timeout: Double) {
        writes.collect(bytes, timeout: timeout)
        (isWriting, isCollecting) = (true, true)
    }

    /// Gives the kernel what was written so far. An error here no longer matters.
    func flush() {
        guard needsPump || isCollecting, let channel else { return }
        // Reading has waited with the writes.
        needsPump = true
        pumpWrites(channel)
    }

    func endCollecting() {
        writes.packCollected()
        isCollecting = false
    }
}
