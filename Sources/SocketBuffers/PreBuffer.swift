// Rules of the read buffer:
//  1. Bytes enter at the back and leave at the front, in order. Only a read that is given up puts back what
//     it had taken.
//  2. An empty buffer owns no memory: the block goes back to the pool with the last byte.
//  3. No byte is searched twice for the same delimiter: `searchedTo` marks where the next search begins.
//  4. Pointers handed out are valid until the next mutation.
//  5. A block that is nearly full of bytes that are all taken at once can be given away with them
//     (`takeBlock(_:)`), which saves copying them.

internal import CLinux
internal import Glibc

/// The growable read buffer of a connection.
///
/// The plain `preBuffer` (bytes read but not yet asked for) and the `sslPreBuffer` (ciphertext not yet
/// decrypted) of CocoaAsyncSocket are both one of these, and so is the ciphertext that waits to be sent.
package final class PreBuffer {
    private let pool: BufferPool
    @exclusivity(unchecked) private var storage: UnsafeMutableRawPointer?
    @exclusivity(unchecked) private var capacity = 0
    @exclusivity(unchecked) private var head = 0
    @exclusivity(unchecked) private var tail = 0
    @exclusivity(unchecked) private var searchedTo = 0

    package init(pool: BufferPool = .shared) {
        self.pool = pool
    }

    deinit { releaseStorage() }

    package var count: Int { tail - head }
    package var isEmpty: Bool { head == tail }

    /// The unread bytes. Valid until the buffer changes.
    package var readableBytes: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: storage.map { $0 + head }, count: count)
    }

    /// Room for at least `minimum` more bytes, to be filled and then announced with `commit(_:)`. Valid until
    /// the buffer changes.
    package func writableBytes(minimum: Int) -> UnsafeMutableRawBufferPointer {
        let base = makeRoom(for: minimum)
        return UnsafeMutableRawBufferPointer(start: base + tail, count: capacity - tail)
    }

    /// The first `count` bytes of the room that `writableBytes(minimum:)` gave have been filled.
    package func commit(_ count: Int) {
        precondition(
            count >= 0 && tail + count <= capacity,
            "commit(_:) may announce only bytes that writableBytes(minimum:) gave room for")
        tail += count
        if isEmpty { releaseStorage() }
    }

    package func append(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return }
        let base = makeRoom(for: bytes.count)
        memcpy(base + tail, source, bytes.count)
        tail += bytes.count
    }

    /// Puts bytes that were taken out back to the front.
    package func prepend(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return }
        let unread = count
        let base = makeRoom(for: bytes.count)
        memmove(base + head + bytes.count, base + head, unread)
        memcpy(base + head, source, bytes.count)
        tail += bytes.count
        searchedTo = 0
    }

    /// Drops `count` bytes from the front. They must be there.
    package func consume(_ count: Int) {
        precondition(count >= 0 && count <= self.count, "consume(_:) may drop only bytes that are in the buffer")
        head += count
        searchedTo = max(0, searchedTo - count)
        if isEmpty { releaseStorage() }
    }

    /// Gives the block away with the first `count` bytes, when those are all there are and fill most of it;
    /// nil otherwise.
    package func takeBlock(_ count: Int) -> TakenBlock? {
        guard let storage, capacity == BufferPool.blockSize, count == self.count, count >= Self.leastGivenAway else { return nil }
        let taken = TakenBlock(start: storage + head, count: count, block: storage, pool: pool)
        self.storage = nil
        capacity = 0
        releaseStorage()
        return taken
    }

    /// Who keeps less than this must not keep a whole block with it.
    private static let leastGivenAway = BufferPool.blockSize / 3 * 2

    /// Drops everything and gives the memory back.
    package func reset() {
        head = 0
        tail = 0
        releaseStorage()
    }

    /// Moves every byte to the back of `other`; this is how `preBuffer` becomes the head of `sslPreBuffer` at
    /// an upgrade.
    package func moveAll(to other: PreBuffer) {
        other.append(readableBytes)
        reset()
    }

    /// A new delimiter is being looked for: what was searched before no longer counts.
    package func restartSearch() {
        searchedTo = 0
    }

    /// The number of bytes up to and including the first `delimiter`, or nil when it is not there yet.
    ///
    /// Each call goes on where the last one stopped, less the length of the delimiter, so that a line
    /// arriving in small pieces is searched in linear time. Call `restartSearch()` when the delimiter
    /// changes.
    package func endOfFirst(_ delimiter: UnsafeRawBufferPointer) -> Int? {
        guard let base = storage, let needle = delimiter.baseAddress, delimiter.count > 0 else { return nil }
        let haystack = base + head + searchedTo
        guard let hit = memmem(haystack, count - searchedTo, needle, delimiter.count) else {
            searchedTo = max(searchedTo, count - delimiter.count + 1)
            return nil
        }
        let offset = UnsafeRawPointer(hit) - UnsafeRawPointer(base + head)
        searchedTo = offset
        return offset + delimiter.count
    }

    // MARK: - Storage

    private func makeRoom(for extra: Int) -> UnsafeMutableRawPointer {
        if let storage, capacity - tail >= extra { return storage }
        if let storage, capacity - count >= extra, head >= capacity / 2 {
            memmove(storage, storage + head, count)
            tail -= head
            head = 0
            return storage
        }
        return grow(to: count + extra)
    }

    private func grow(to needed: Int) -> UnsafeMutableRawPointer {
        let unread = count
        let roomy = max(needed, capacity == 0 ? 0 : capacity * 2)
        let newCapacity = roomy <= BufferPool.blockSize ? BufferPool.blockSize : roomy
        let grown = newCapacity == BufferPool.blockSize ? pool.take() : .allocate(byteCount: newCapacity, alignment: 16)
        if let storage { memcpy(grown, storage + head, unread) }
        freeStorage()
        storage = grown
        capacity = newCapacity
        head = 0
        tail = unread
        return grown
    }

    private func releaseStorage() {
        freeStorage()
        head = 0
        tail = 0
        searchedTo = 0
    }

    private func freeStorage() {
        guard let block = storage else { return }
        if capacity == BufferPool.blockSize { pool.give(block) } else { block.deallocate() }
        storage = nil
        capacity = 0
    }
}

/// Bytes in a block that they have left their buffer with.
package struct TakenBlock: @unchecked Sendable {
    // Unchecked: whoever has the bytes is the only one who uses them.
    package let start: UnsafeMutableRawPointer
    package let count: Int
    fileprivate let block: UnsafeMutableRawPointer
    fileprivate let pool: BufferPool

    /// The bytes are no longer needed. To be called once.
    package func giveBack() {
        pool.give(block)
    }
}
