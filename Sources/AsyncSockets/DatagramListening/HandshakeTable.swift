internal import SocketCore

/// A number that identifies a handshake and is not reused.
typealias HandshakeNumber = UInt64

/// The incomplete handshakes of a `DatagramListener`, grouped by the clients' sources.
struct HandshakeTable<Client> {
    private struct Handshake {
        let number: HandshakeNumber
        /// `nil` until the client's socket has been created.
        var client: Client?
    }

    private typealias Sources = SourceGroups<Handshake>

    var prefix = SourcePrefix()
    private var sources = Sources()
    private var places: [HandshakeNumber: (slot: Sources.Slot, place: Sources.Place)] = [:]
    private var lastNumber: HandshakeNumber = 0

    var count: Int { places.count }

    func contains(_ number: HandshakeNumber) -> Bool { places[number] != nil }

    mutating func begin(from address: InternetAddress) -> HandshakeNumber {
        lastNumber += 1
        let slot = sources.enter(SourceKey(address.socketAddress, prefix))
        places[lastNumber] = (slot, sources.append(Handshake(number: lastNumber), of: slot))
        return lastNumber
    }

    mutating func setClient(_ client: Client, of number: HandshakeNumber) {
        if let place = places[number]?.place { sources[place]?.client = client }
    }

    @discardableResult
    mutating func end(_ number: HandshakeNumber) -> Client? {
        guard let (slot, place) = places.removeValue(forKey: number) else { return nil }
        defer { sources.leave(slot) }
        return sources.remove(place)?.client
    }

    /// Removes the oldest handshake of the source with the most handshakes.
    mutating func endOldestOfLargestSource() -> Client? {
        sources.oldestOfLargestSource.flatMap { end($0.number) }
    }
}
