public import Glibc

/// A queue in a ring buffer.
///
/// Elements are read and modified in place. In this library, elements occupy about a hundred bytes and
/// contain references, which every copy would retain. Public and inlinable for the reason given in `Locked`.
public struct Ring<Element>: ~Copyable {
    @usableFromInline var memory: UnsafeMutablePointer<Element>?
    // 32-bit fields save memory, because every connection has several rings.
    /// Zero or a power of two.
    @usableFromInline var capacity: UInt32 = 0
    @usableFromInline var head: UInt32 = 0
    @usableFromInline var held: UInt32 = 0

    /// The default capacity above which an emptied ring frees its memory.
    @inlinable public static var keptCapacity: Int { 64 }

    /// Creates an empty ring, which allocates no memory.
    @inlinable
    public init() {}

    @inlinable
    deinit {
        for offset in 0..<count { place(offset).deinitialize(count: 1) }
        free(memory)
    }

    /// The number of elements.
    @inlinable public var count: Int { Int(held) }
    /// Whether the queue has no elements.
    @inlinable public var isEmpty: Bool { held == 0 }

    /// Adds an element at the back.
    @inlinable
    public mutating func append(_ element: consuming Element) {
        if held == capacity { grow() }
        place(count).initialize(to: consume element)
        held += 1
    }

    /// The element at `offset` from the front, or `nil` past the end. Valid until the ring changes.
    @inlinable
    public subscript(offset: Int) -> UnsafeMutablePointer<Element>? {
        offset < count ? place(offset) : nil
    }

    /// Removes and returns the front element, or returns `nil` if the ring is empty.
    ///
    /// - Parameter limit: The capacity above which an emptied ring frees its memory.
    @inlinable
    public mutating func popFirst(keepingCapacity limit: Int = Self.keptCapacity) -> Element? {
        guard held > 0 else { return nil }
        let element = place(0).move()
        head = (head + 1) & (capacity - 1)
        held -= 1
        if held == 0, capacity > limit { dropMemory() }
        return element
    }

    /// Removes and returns the element at `offset` from the front, or returns `nil` past the end.
    @inlinable
    public mutating func remove(at offset: Int) -> Element? {
        guard offset < count else { return nil }
        guard offset > 0 else { return popFirst() }
        let element = place(offset).move()
        for later in offset + 1..<max(count, offset + 1) { place(later - 1).moveInitialize(from: place(later), count: 1) }
        held -= 1
        return element
    }

    /// Removes all elements and frees the memory.
    @inlinable
    public mutating func removeAll() {
        for offset in 0..<count { place(offset).deinitialize(count: 1) }
        held = 0
        dropMemory()
    }

    @inlinable
    func place(_ offset: Int) -> UnsafeMutablePointer<Element> {
        // Called only for an offset that has an element or space for an element.
        memory.unsafelyUnwrapped + Int((head &+ UInt32(truncatingIfNeeded: offset)) & (capacity &- 1))
    }

    @inlinable
    mutating func grow() {
        let larger = Self.allocate(Int(max(capacity * 2, 1)))
        for offset in 0..<count { (larger + offset).moveInitialize(from: place(offset), count: 1) }
        free(memory)
        memory = larger
        capacity = max(capacity * 2, 1)
        head = 0
    }

    /// Allocates with malloc(3). `UnsafeMutablePointer.allocate` requests an alignment, which takes twice
    /// as long.
    @inlinable
    static func allocate(_ capacity: Int) -> UnsafeMutablePointer<Element> {
        guard let memory = malloc(capacity * MemoryLayout<Element>.stride) else { preconditionFailure("out of memory") }
        return memory.bindMemory(to: Element.self, capacity: capacity)
    }

    @inlinable
    mutating func dropMemory() {
        free(memory)
        memory = nil
        capacity = 0
        head = 0
    }
}
