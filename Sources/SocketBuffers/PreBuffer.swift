// Rules of the read buffer:
//  1. Bytes enter at the back and leave at the front, in order. Only a read that is given up returns the
//     bytes that it has taken.
//  2. An empty buffer owns no memory: the block returns to the pool with the last byte.
//  3. No byte is searched twice for the same delimiter: `searchedTo` marks where the next search begins.
//  4. Pointers into the buffer are valid until the next mutation.
//  5. If all bytes are taken at once, the block can leave with them (`takeBlock(_:atLeast:)`), which saves a
//     copy. Its new owner keeps it for a short time only, unless they nearly fill it.

internal import CLinux
internal import Glibc

/// The growable read buffer of a connection.
///
/// Both the `preBuffer` (bytes that are read but not yet asked for) and the `sslPreBuffer` (ciphertext that
/// is not yet decrypted) of CocoaAsyncSocket are one of these; so is the ciphertext that waits to be sent.
/// Public and inlinable in part, for the reason in `Locked`: the call would cost more than the work.
public final class PreBuffer {
    private let pool: BufferPool
    @exclusivity(unchecked) @usableFromInline var storage: UnsafeMutableRawPointer?
    @exclusivity(unchecked) private var capacity = 0
    @exclusivity(unchecked) @usableFromInline var head = 0
    @exclusivity(unchecked) @usableFromInline var tail = 0
    @exclusivity(unchecked) private var searchedTo = 0

    package init(pool: BufferPool = .shared) {
        self.pool = pool
    }

    deinit { releaseStorage() }

    /// The number of unread bytes.
    @inlinable public var count: Int { tail - head }
    /// Whether no byte is unread.
    @inlinable public var isEmpty: Bool { head == tail }

    /// The unread bytes. Valid until the buffer changes.
    @inlinable public var readableBytes: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: storage.map { $0 + head }, count: count)
    }

    /// Room for at least `minimum` more bytes: fill it, then call `commit(_:)`. Valid until the buffer
    /// changes.
    package func writableBytes(minimum: Int) -> UnsafeMutableRawBufferPointer {
        let base = makeRoom(for: minimum)
        return UnsafeMutableRawBufferPointer(start: base + tail, count: capacity - tail)
    }

    /// Appends the first `count` bytes of the room that `writableBytes(minimum:)` returned.
    package func commit(_ count: Int) {
        precondition(
            count >= 0 && tail + count <= capacity,
            "commit(_:) may append only bytes that writableBytes(minimum:) returned room for")
        tail += count
        if isEmpty { releaseStorage() }
    }

    package func append(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return }
        let base = makeRoom(for: bytes.count)
        memcpy(base + tail, source, bytes.count)
        tail += bytes.count
    }

    /// Inserts bytes at the front: those that a read had taken.
    package func prepend(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return }
        let unread = count
        let base = makeRoom(for: bytes.count)
        memmove(base + head + bytes.count, base + head, unread)
        memcpy(base + head, source, bytes.count)
        tail += bytes.count
        searchedTo = 0
    }

    /// Drops the first `count` bytes. The buffer must have so many.
    package func consume(_ count: Int) {
        precondition(count >= 0 && count <= self.count, "consume(_:) may drop only bytes that are in the buffer")
        head += count
        searchedTo = max(0, searchedTo - count)
        if isEmpty { releaseStorage() }
    }

    /// The block with its first `count` bytes, which leaves the buffer, if those are all the bytes, and at
    /// least so many; otherwise nil.
    package func takeBlock(_ count: Int, atLeast least: Int = PreBuffer.leastGivenAway) -> TakenBlock? {
        guard let storage, capacity == BufferPool.blockSize, count == self.count, count >= least else { return nil }
        let taken = TakenBlock(start: storage + head, count: count, block: storage, pool: pool)
        self.storage = nil
        capacity = 0
        releaseStorage()
        return taken
    }

    /// Fewer bytes than this, two thirds of a block, must not keep a whole block alive.
    @inlinable public static var leastGivenAway: Int { 44_032 }

    /// Drops all bytes and frees the memory.
    package func reset() {
        head = 0
        tail = 0
        releaseStorage()
    }

    /// Moves every byte to the back of `other`. At an upgrade `preBuffer` becomes the head of `sslPreBuffer`
    /// this way.
    package func moveAll(to other: PreBuffer) {
        other.append(readableBytes)
        reset()
    }

    /// Starts the search again, for a new delimiter.
    package func restartSearch() {
        searchedTo = 0
    }

    /// The number of bytes up to and including the first `delimiter`, or nil if it has not arrived yet.
    ///
    /// Each call continues where the last one stopped, less the length of the delimiter, so the search for a
    /// line in small pieces takes linear time. Call `restartSearch()` when the delimiter changes.
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

    /// The number of bytes up to and including the first line feed, or nil if it has not arrived yet. Each
    /// call continues where the last one stopped, as with `endOfFirst(_:)`.
    package func endOfLine() -> Int? {
        guard let base = storage else { return nil }
        guard let hit = memchr(base + head + searchedTo, 0x0A, count - searchedTo) else {
            searchedTo = count
            return nil
        }
        searchedTo = UnsafeRawPointer(hit) - UnsafeRawPointer(base + head)
        return searchedTo + 1
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

/// Bytes that have left their buffer together with their block.
package struct TakenBlock: @unchecked Sendable {
    // Unchecked: the bytes have one owner, which alone uses them.
    package let start: UnsafeMutableRawPointer
    package let count: Int
    fileprivate let block: UnsafeMutableRawPointer
    fileprivate let pool: BufferPool

    /// Returns the block to the pool. Call it once.
    package func giveBack() {
        pool.give(block)
    }
}
