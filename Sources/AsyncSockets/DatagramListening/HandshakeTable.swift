internal import SocketCore

/// A number that identifies a handshake and is not reused.
typealias HandshakeNumber = UInt64

/// The peers of a `DatagramListener`, grouped by source, with the incomplete handshakes of each source.
///
/// The number of its handshake identifies a peer, even after the handshake.
struct HandshakeTable<Client> {
    private struct Handshake {
        let number: HandshakeNumber
        /// `nil` until the client's socket has been created.
        var client: Client?
    }

    private typealias Sources = SourceGroups<Handshake>

    var prefix = SourcePrefix()
    private var sources = Sources()
    /// `place` is `nil` after the handshake.
    private var places: [HandshakeNumber: (slot: Sources.Slot, place: Sources.Place?)] = [:]
    private var lastNumber: HandshakeNumber = 0

    /// The number of incomplete handshakes.
    var count: Int { sources.unprovenCount }

    /// Whether a handshake is incomplete.
    func contains(_ number: HandshakeNumber) -> Bool { places[number]?.place != nil }

    func source(of address: InternetAddress) -> SourceKey { SourceKey(address.socketAddress, prefix) }

    /// The number of peers of a source, with complete and incomplete handshakes.
    func peerCount(of source: SourceKey) -> Int { sources.count(of: source) }

    /// Whether a peer counts towards a source. After a change of `prefix`, earlier peers keep their sources.
    func contains(_ number: HandshakeNumber, of source: SourceKey) -> Bool {
        places[number].map { sources.contains($0.slot, of: source) } ?? false
    }

    /// The number of incomplete handshakes of a source.
    func count(of source: SourceKey) -> Int { sources.unprovenCount(of: source) }

    mutating func begin(from address: InternetAddress) -> HandshakeNumber {
        lastNumber += 1
        let slot = sources.enter(source(of: address))
        places[lastNumber] = (slot, sources.append(Handshake(number: lastNumber), of: slot))
        return lastNumber
    }

    mutating func setClient(_ client: Client, of number: HandshakeNumber) {
        if let place = places[number]?.place { sources[place]?.client = client }
    }

    /// Removes a handshake, and returns its client. The peer still counts towards its source.
    @discardableResult
    mutating func end(_ number: HandshakeNumber) -> Client? {
        guard let place = places[number]?.place else { return nil }
        places[number]?.place = nil
        return sources.remove(place)?.client
    }

    /// Removes a peer, and its handshake if that is incomplete.
    mutating func leave(_ number: HandshakeNumber) {
        end(number)
        if let slot = places.removeValue(forKey: number)?.slot { sources.leave(slot) }
    }

    /// Removes the oldest handshake of the source with the most handshakes.
    mutating func endOldestOfLargestSource() -> Client? {
        sources.oldestOfLargestSource.flatMap { end($0.number) }
    }

    /// Removes the oldest handshake of a source.
    mutating func endOldest(of source: SourceKey) -> Client? {
        sources.oldest(of: source).flatMap { end($0.number) }
    }
}
