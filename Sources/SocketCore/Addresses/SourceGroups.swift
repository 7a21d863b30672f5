// Rules of the groups:
//  1. Each source with members has a group. The members are open connections or handshakes.
//  2. Each source has a list of its unproven members, oldest first.
//  3. Sources with the same number of unproven members form a list too, in the order in which they reached
//     that number. If each source has one unproven member, the oldest member is therefore chosen.
//  4. Each operation takes constant time, because strangers choose the number of members and sources.

/// The members of each source, with a list of its unproven members.
package struct SourceGroups<Member> {
    /// Where a source is stored. Valid while the source has members.
    package struct Slot: Sendable {
        fileprivate let index: Int32
    }

    /// Where an unproven member is stored. Valid until the member is removed.
    package struct Place: Sendable {
        fileprivate let index: Int32
    }

    /// The member that may be replaced.
    package enum Candidate {
        case none
        /// No member may be replaced before this time.
        case later(Deadline)
        case member(Member)
    }

    private struct Unproven {
        var member: Member
        let source: Slot
        let beginning: Deadline
    }

    private struct Source {
        let key: SourceKey
        var count = 1
        var unproven = LinkedLists<Unproven>.List()
        var unprovenCount = 0
        /// Its position in the list of sources with `unprovenCount` unproven members.
        var rank: Int32 = 0
    }

    private var slots: [SourceKey: Slot] = [:]
    private var sources = Slab<Source>()
    private var members = LinkedLists<Unproven>()
    private var ranked = LinkedLists<Slot>()
    /// The sources by the number of their unproven members.
    private var ranks: [LinkedLists<Slot>.List] = []

    package init() {}

    package var sourceCount: Int { slots.count }

    /// The number of unproven members of all sources.
    package var unprovenCount: Int { members.count }

    /// The largest number of unproven members of one source.
    package var largestUnprovenCount: Int { ranks.count }

    /// Adds a member of a source. Returns `nil` if the source has `limit` members.
    package mutating func enter(_ key: SourceKey, limit: Int) -> Slot? {
        guard let slot = slots[key] else { return limit > 0 ? add(key) : nil }
        guard let count = sources[slot.index]?.count, count < limit else { return nil }
        sources[slot.index]?.count = count + 1
        return slot
    }

    /// Adds a member of a source.
    package mutating func enter(_ key: SourceKey) -> Slot { enter(key, limit: .max) ?? add(key) }

    package func contains(_ slot: Slot, of key: SourceKey) -> Bool { slots[key]?.index == slot.index }

    /// The number of members of a source.
    package func count(of key: SourceKey) -> Int { source(key)?.count ?? 0 }

    /// The number of unproven members of a source.
    package func unprovenCount(of key: SourceKey) -> Int { source(key)?.unprovenCount ?? 0 }

    /// The oldest unproven member of a source.
    package func oldest(of key: SourceKey) -> Member? {
        source(key).flatMap { members.first(of: $0.unproven)?.member }
    }

    private func source(_ key: SourceKey) -> Source? { slots[key].flatMap { sources[$0.index] } }

    private mutating func add(_ key: SourceKey) -> Slot {
        let slot = Slot(index: sources.insert(Source(key: key)))
        slots[key] = slot
        return slot
    }

    /// Removes a member of a source, which must not be among the unproven ones.
    package mutating func leave(_ slot: Slot) {
        guard let source = sources[slot.index] else { return }
        if source.count > 1 {
            sources[slot.index]?.count -= 1
        } else {
            slots[source.key] = nil
            _ = sources.remove(slot.index)
        }
    }

    /// Adds a member to the unproven members of its source.
    package mutating func append(_ member: Member, of slot: Slot, at now: Deadline = .distantPast) -> Place {
        var list = sources[slot.index]?.unproven ?? LinkedLists.List()
        let place = members.append(Unproven(member: member, source: slot, beginning: now), to: &list)
        sources[slot.index]?.unproven = list
        rank(slot, by: 1)
        return Place(index: place)
    }

    package subscript(place: Place) -> Member? {
        get { members[place.index]?.member }
        set { if let newValue { members[place.index]?.member = newValue } }
    }

    /// Removes a member from the unproven members.
    @discardableResult
    package mutating func remove(_ place: Place) -> Member? {
        guard let slot = members[place.index]?.source, var list = sources[slot.index]?.unproven else { return nil }
        let member = members.remove(place.index, from: &list)?.member
        sources[slot.index]?.unproven = list
        rank(slot, by: -1)
        return member
    }

    /// The oldest unproven member of the source with the most unproven members.
    package var oldestOfLargestSource: Member? { oldest?.member }

    /// Returns the same member once it has been unproven for a second. Honest clients of a busy server may
    /// need that long to prove themselves.
    package func candidate(at now: Deadline) -> Candidate {
        guard let oldest, let end = Deadline(after: 1, from: oldest.beginning) else { return .none }
        return now < end ? .later(end) : .member(oldest.member)
    }

    private var oldest: Unproven? {
        guard let rank = ranks.last, let slot = ranked.first(of: rank), let source = sources[slot.index] else { return nil }
        return members.first(of: source.unproven)
    }

    private mutating func rank(_ slot: Slot, by change: Int) {
        guard let source = sources[slot.index] else { return }
        let count = source.unprovenCount + change
        if source.unprovenCount > 0 { _ = ranked.remove(source.rank, from: &ranks[source.unprovenCount - 1]) }
        sources[slot.index]?.unprovenCount = count
        if count > 0 {
            // The count changes by one, so at most one rank is missing.
            if count > ranks.count { ranks.append(LinkedLists.List()) }
            let rank = ranked.append(slot, to: &ranks[count - 1])
            sources[slot.index]?.rank = rank
        }
        if ranks.last?.isEmpty == true { ranks.removeLast() }
    }
}

/// Elements that stay where they are until they are removed.
private struct Slab<Element> {
    private var elements: [Element?] = []
    private var free: [Int32] = []

    var count: Int { elements.count - free.count }

    subscript(index: Int32) -> Element? {
        get { elements[Int(index)] }
        _modify { yield &elements[Int(index)] }
    }

    mutating func insert(_ element: Element) -> Int32 {
        if let index = free.popLast() {
            elements[Int(index)] = element
            return index
        }
        elements.append(element)
        return Int32(elements.count - 1)
    }

    mutating func remove(_ index: Int32) -> Element? {
        let removed = elements[Int(index)].take()
        free.append(index)
        if count == 0 {
            let isSmall = elements.count <= Self.keptCapacity
            elements.removeAll(keepingCapacity: isSmall)
            free.removeAll(keepingCapacity: isSmall)
        }
        return removed
    }

    private static var keptCapacity: Int { 64 }
}

/// Doubly linked lists in one array. Elements are removed in constant time.
private struct LinkedLists<Element> {
    struct List {
        fileprivate var first: Int32?
        fileprivate var last: Int32?

        var isEmpty: Bool { first == nil }
    }

    private struct Node {
        var element: Element
        var previous: Int32?
        var next: Int32?
    }

    private var nodes = Slab<Node>()

    var count: Int { nodes.count }

    subscript(place: Int32) -> Element? {
        get { nodes[place]?.element }
        set { if let newValue { nodes[place]?.element = newValue } }
    }

    func first(of list: List) -> Element? { list.first.flatMap { nodes[$0]?.element } }

    /// - Returns: The position of the element, valid until the element is removed.
    mutating func append(_ element: Element, to list: inout List) -> Int32 {
        let place = nodes.insert(Node(element: element, previous: list.last))
        if let last = list.last { nodes[last]?.next = place } else { list.first = place }
        list.last = place
        return place
    }

    mutating func remove(_ place: Int32, from list: inout List) -> Element? {
        guard let node = nodes.remove(place) else { return nil }
        if let previous = node.previous { nodes[previous]?.next = node.next } else { list.first = node.next }
        if let next = node.next { nodes[next]?.previous = node.previous } else { list.last = node.previous }
        return node.element
    }
}
