// Rules of the table:
//  1. Each source has a list of its handshakes, oldest first.
//  2. Sources with the same number of handshakes form a list too, in the order in which they reached that
//     number. So if each source has one handshake, the oldest handshake is found first.
//  3. Each operation takes constant time, because strangers choose the number of handshakes and sources.

internal import SocketCore

/// A number that identifies a handshake and is not reused.
typealias HandshakeNumber = UInt64

/// The incomplete handshakes of a `DatagramListener`, grouped by the clients' sources.
struct HandshakeTable<Client> {
    private struct Handshake {
        let number: HandshakeNumber
        let source: SourceKey
        /// `nil` until the client's socket has been created.
        var client: Client?
    }

    private struct Source {
        var handshakes = LinkedLists<Handshake>.List()
        var count = 0
        /// The position in the list of sources with `count` handshakes.
        var place = 0
    }

    private var handshakes = LinkedLists<Handshake>()
    private var places: [HandshakeNumber: Int] = [:]
    private var sources: [SourceKey: Source] = [:]
    private var ranked = LinkedLists<SourceKey>()
    private var ranks: [Int: LinkedLists<SourceKey>.List] = [:]
    private var highestRank = 0
    private var lastNumber: HandshakeNumber = 0

    var count: Int { places.count }

    func contains(_ number: HandshakeNumber) -> Bool { places[number] != nil }

    mutating func begin(from address: InternetAddress) -> HandshakeNumber {
        lastNumber += 1
        let key = SourceKey(address.socketAddress)
        var source = sources[key] ?? Source()
        places[lastNumber] = handshakes.append(Handshake(number: lastNumber, source: key), to: &source.handshakes)
        rank(key, &source, source.count + 1)
        sources[key] = source
        return lastNumber
    }

    mutating func setClient(_ client: Client, of number: HandshakeNumber) {
        if let place = places[number] { handshakes[place]?.client = client }
    }

    @discardableResult
    mutating func end(_ number: HandshakeNumber) -> Client? {
        guard let place = places.removeValue(forKey: number), let key = handshakes[place]?.source, var source = sources[key]
        else { return nil }
        let client = handshakes.remove(place, from: &source.handshakes)?.client
        rank(key, &source, source.count - 1)
        sources[key] = source.count == 0 ? nil : source
        return client
    }

    /// Removes the oldest handshake of the source with the most handshakes.
    mutating func endOldestOfLargestSource() -> Client? {
        guard let rank = ranks[highestRank], let key = ranked.first(of: rank), let source = sources[key],
            let oldest = handshakes.first(of: source.handshakes)
        else { return nil }
        return end(oldest.number)
    }

    private mutating func rank(_ key: SourceKey, _ source: inout Source, _ count: Int) {
        if source.count > 0, var list = ranks[source.count] {
            _ = ranked.remove(source.place, from: &list)
            ranks[source.count] = list.isEmpty ? nil : list
        }
        source.count = count
        if count > 0 {
            var list = ranks[count] ?? LinkedLists.List()
            source.place = ranked.append(key, to: &list)
            ranks[count] = list
        }
        // A source's count changes by one at a time.
        if count > highestRank { highestRank = count } else if ranks[highestRank] == nil { highestRank -= 1 }
    }
}

/// Doubly linked lists in one array. Elements are removed in constant time.
private struct LinkedLists<Element> {
    struct List {
        fileprivate var first: Int?
        fileprivate var last: Int?

        var isEmpty: Bool { first == nil }
    }

    private struct Node {
        var element: Element?
        var previous: Int?
        var next: Int?
    }

    private var nodes: [Node] = []
    private var free: [Int] = []

    subscript(place: Int) -> Element? {
        get { nodes[place].element }
        set { nodes[place].element = newValue }
    }

    func first(of list: List) -> Element? { list.first.flatMap { nodes[$0].element } }

    /// - Returns: The position of the element, valid until the element is removed.
    mutating func append(_ element: Element, to list: inout List) -> Int {
        let node = Node(element: element, previous: list.last)
        let place = free.popLast() ?? nodes.count
        if place == nodes.count { nodes.append(node) } else { nodes[place] = node }
        if let last = list.last { nodes[last].next = place } else { list.first = place }
        list.last = place
        return place
    }

    mutating func remove(_ place: Int, from list: inout List) -> Element? {
        let (removed, previous, next) = (nodes[place].element, nodes[place].previous, nodes[place].next)
        if let previous { nodes[previous].next = next } else { list.first = next }
        if let next { nodes[next].previous = previous } else { list.last = previous }
        nodes[place] = Node()
        free.append(place)
        return removed
    }
}
