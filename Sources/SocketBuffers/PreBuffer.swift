// Rules of the read buffer:
//  1. Bytes are appended at the back and consumed at the front, in order. Consumed bytes return to the
//     front only if a read is abandoned.
//  2. An empty buffer owns no memory: the block returns to the pool when the last byte is consumed. A few
//     bytes of an incomplete message do not occupy a block for long (`compact()`).
//  3. No byte is searched twice for the same delimiter. `searchedTo` is the position at which the next
//     search starts.
//  4. Pointers into the buffer are valid until the next mutation.
//  5. If all bytes are consumed in one step, the block can be handed over with them
//     (`takeBlock(_:atLeast:)`), which saves a copy. The new owner keeps the block only briefly, unless the
//     bytes nearly fill it.

internal import CLinux
internal import Glibc

/// The growable read buffer of a connection.
///
/// It corresponds to both the `preBuffer` (bytes that no read has requested yet) and the `sslPreBuffer`
/// (ciphertext that is not yet decrypted) in CocoaAsyncSocket. It is also used for ciphertext to be sent.
/// Parts are public and inlinable for the reason given in `Locked`: a call would cost more than the work.
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
    /// Whether the buffer is empty.
    @inlinable public var isEmpty: Bool { head == tail }

    /// The unread bytes. Valid until the buffer changes.
    @inlinable public var readableBytes: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: storage.map { $0 + head }, count: count)
    }

    /// Returns space for at least `minimum` more bytes. Fill it, then call `commit(_:)`. Valid until the
    /// buffer changes.
    package func writableBytes(minimum: Int) -> UnsafeMutableRawBufferPointer {
        let base = makeRoom(for: minimum)
        return UnsafeMutableRawBufferPointer(start: base + tail, count: capacity - tail)
    }

    /// Appends the first `count` bytes of the space that `writableBytes(minimum:)` returned.
    package func commit(_ count: Int) {
        precondition(
            count >= 0 && tail + count <= capacity,
            "commit(_:) can append only as many bytes as writableBytes(minimum:) made room for")
        tail += count
        if isEmpty { releaseStorage() }
    }

    package func append(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return }
        let base = makeRoom(for: bytes.count)
        memcpy(base + tail, source, bytes.count)
        tail += bytes.count
    }

    /// Restores bytes that a read had consumed, at the front of the buffer.
    package func prepend(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return }
        let unread = count
        let base = makeRoom(for: bytes.count)
        memmove(base + head + bytes.count, base + head, unread)
        memcpy(base + head, source, bytes.count)
        tail += bytes.count
        searchedTo = 0
    }

    /// Consumes the first `count` bytes, which must not exceed the number of unread bytes.
    package func consume(_ count: Int) {
        precondition(count >= 0 && count <= self.count, "consume(_:) can drop only bytes that are in the buffer")
        head += count
        searchedTo = max(0, searchedTo - count)
        if isEmpty { releaseStorage() }
    }

    /// Removes and returns the block if it contains exactly `count` unread bytes and `count` is at least
    /// `least`. Otherwise, or if the storage is not a block from the pool, returns `nil`.
    package func takeBlock(_ count: Int, atLeast least: Int = PreBuffer.leastGivenAway) -> TakenBlock? {
        guard let storage, capacity == BufferPool.blockSize, count == self.count, count >= least else { return nil }
        let taken = TakenBlock(start: storage + head, count: count, block: storage, pool: pool)
        self.storage = nil
        capacity = 0
        releaseStorage()
        return taken
    }

    /// The minimum number of bytes for handing over a block: two thirds of a block. Fewer bytes must not
    /// keep a whole block alive.
    @inlinable public static var leastGivenAway: Int { 44_032 }

    /// Discards all bytes and frees the memory.
    package func reset() {
        head = 0
        tail = 0
        releaseStorage()
    }

    /// Moves a few bytes from a block into memory of their size. More bytes stay where they are.
    package func compact() {
        guard !isEmpty, count <= Self.mostCompacted, capacity == BufferPool.blockSize, let storage else { return }
        let unread = count
        let small = UnsafeMutableRawPointer.allocate(byteCount: unread, alignment: 16)
        memcpy(small, storage + head, unread)
        freeStorage()
        (self.storage, capacity, head, tail) = (small, unread, 0, unread)
    }

    private static var mostCompacted: Int { 2_048 }

    /// Moves all bytes to the back of `other`. When a connection is upgraded, this moves `preBuffer` to the
    /// front of `sslPreBuffer`.
    package func moveAll(to other: PreBuffer) {
        other.append(readableBytes)
        reset()
    }

    /// Restarts the search at the front, for a different delimiter.
    package func restartSearch() {
        searchedTo = 0
    }

    /// Returns the number of bytes up to and including the first `delimiter`, or `nil` if it has not
    /// arrived yet.
    ///
    /// Each call continues where the previous one stopped, minus the length of the delimiter. So the search
    /// takes linear time even if a line arrives in small pieces. Call `restartSearch()` when the delimiter
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

    /// Returns the number of bytes up to and including the first line feed, or `nil` if it has not arrived
    /// yet. Each call continues where the previous one stopped, as in `endOfFirst(_:)`.
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

/// Bytes removed from a buffer together with their block.
package struct TakenBlock: @unchecked Sendable {
    // Unchecked: the bytes have a single owner, and only the owner uses them.
    package let start: UnsafeMutableRawPointer
    package let count: Int
    fileprivate let block: UnsafeMutableRawPointer
    fileprivate let pool: BufferPool

    /// Returns the block to the pool. Must be called exactly once.
    package func giveBack() {
        pool.give(block)
    }
}
