/// A queue in one piece of memory that is used in a circle.
///
/// An element is looked at and changed where it is: those of this project have a hundred bytes and references
/// among them, and each copy would be counted. Public and inlinable for the reason that `Locked` names.
public struct Ring<Element>: ~Copyable {
    @usableFromInline var memory: UnsafeMutablePointer<Element>?
    // Four bytes each: every connection has several rings.
    /// Zero, or a power of two.
    @usableFromInline var capacity: UInt32 = 0
    @usableFromInline var head: UInt32 = 0
    @usableFromInline var held: UInt32 = 0

    /// An emptied ring that has grown beyond this many places gives its memory back, unless its owner says
    /// otherwise.
    @inlinable public static var keptCapacity: Int { 64 }

    /// An empty ring, which owns no memory.
    @inlinable
    public init() {}

    @inlinable
    deinit {
        for offset in 0..<count { place(offset).deinitialize(count: 1) }
        memory?.deallocate()
    }

    /// How many elements there are.
    @inlinable public var count: Int { Int(held) }
    /// True when there are none.
    @inlinable public var isEmpty: Bool { held == 0 }

    /// Puts an element behind the others.
    @inlinable
    public mutating func append(_ element: consuming Element) {
        if held == capacity { grow() }
        place(count).initialize(to: element)
        held += 1
    }

    /// The element that is `offset` places behind the front; nil past the end. Valid until the ring changes.
    @inlinable
    public subscript(offset: Int) -> UnsafeMutablePointer<Element>? {
        offset < count ? place(offset) : nil
    }

    /// Takes the element at the front out; nil when there is none.
    ///
    /// - Parameter limit: How many places an emptied ring keeps the memory of.
    @inlinable
    public mutating func popFirst(keepingCapacity limit: Int = Self.keptCapacity) -> Element? {
        guard held > 0 else { return nil }
        let element = place(0).move()
        head = (head + 1) & (capacity - 1)
        held -= 1
        if held == 0, capacity > limit { dropMemory() }
        return element
    }

    /// Takes out the element that is `offset` places behind the front; nil past the end.
    @inlinable
    public mutating func remove(at offset: Int) -> Element? {
        guard offset < count else { return nil }
        let element = place(offset).move()
        for later in offset + 1..<max(count, offset + 1) { place(later - 1).moveInitialize(from: place(later), count: 1) }
        held -= 1
        return element
    }

    /// Drops all elements and gives the memory back.
    @inlinable
    public mutating func removeAll() {
        for offset in 0..<count { place(offset).deinitialize(count: 1) }
        held = 0
        dropMemory()
    }

    @inlinable
    func place(_ offset: Int) -> UnsafeMutablePointer<Element> {
        // Asked for only where there is an element or room for one.
        memory.unsafelyUnwrapped + Int((head &+ UInt32(truncatingIfNeeded: offset)) & (capacity &- 1))
    }

    @inlinable
    mutating func grow() {
        let larger = UnsafeMutablePointer<Element>.allocate(capacity: Int(max(capacity * 2, 1)))
        for offset in 0..<count { (larger + offset).moveInitialize(from: place(offset), count: 1) }
        memory?.deallocate()
        memory = larger
        capacity = max(capacity * 2, 1)
        head = 0
    }

    @inlinable
    mutating func dropMemory() {
        memory?.deallocate()
        memory = nil
        capacity = 0
        head = 0
    }
}
