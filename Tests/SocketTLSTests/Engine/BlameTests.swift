import AsyncSocketsTesting
import SocketBuffers
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

/// Errors caused by the peer's bytes are attributed to the peer, never to this machine.
@Suite(.ownThreads) struct BlameTests {
    private static let rounds = 3_000

    /// Returns the data that one side received in a handshake, in the original pieces.
    private static func flights(_ fixture: Fixture, to side: Side) throws -> [[UInt8]] {
        let pair = try fixture.pair()
        var flights: [[UInt8]] = []
        var isBusy = true
        while isBusy {
            _ = pair.client.handshake()
            _ = pair.server.handshake()
            let output = side == .server ? pair.client.output : pair.server.output
            if !output.isEmpty { flights.append(Array(output.readableBytes)) }
            isBusy = pair.carry()
        }
        return flights
    }

    /// Handshakes in which any flight of the peer can be modified. The keys are real, so unmodified bytes are
    /// valid.
    @Test(arguments: versions, Side.allCases)
    func changedHandshakesAreNeverTheSystemsFault(version: TLSProtocolVersion, side: Side) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        let recorded = try Self.flights(fixture, to: side)
        var random = SeededGenerator(seed: UInt64(version.hashValueForSeed) &* 31 &+ (side == .server ? 1 : 2))
        var failures = 0
        for round in 0..<Self.rounds {
            let pair = try fixture.pair()
            let (victim, other) = side == .server ? (pair.server, pair.client) : (pair.client, pair.server)
            let flight = Int.random(in: 0..<recorded.count + 1, using: &random)
            var history = ""
            for number in 0..<recorded.count + 2 {
                _ = victim.handshake()
                other.received.append(victim.output.readableBytes)
                victim.output.consume(victim.output.count)
                _ = other.handshake()
                var bytes = Array(other.output.readableBytes)
                other.output.consume(bytes.count)
                if number == flight { history = Mutation.apply(to: &bytes, recorded, &random) }
                victim.receive(bytes)
                if number == flight, Bool.random(using: &random) { victim.receiveEndOfFile() }
            }
            guard let error = victim.handshake().error ?? victim.readAll().end.error else { continue }
            failures += 1
            #expect(error.fault == .peer || error.fault == .certificate, "round \(round), \(history): \(error)")
        }
        #expect(failures > Self.rounds / 2)
    }

    /// An alert with another version after our ServerHello, to which OpenSSL does not respond with an alert.
    @Test(arguments: [[21, 3, 1, 0, 2, 2, 40], [21, 3, 1, 0, 2, 2, 70], [21, 3, 2, 0, 2, 1, 0]] as [[UInt8]])
    func anAlertOfAnOlderVersionIsThePeers(record: [UInt8]) throws {
        let pair = try Fixture(.tls12).pair()
        _ = pair.client.handshake()
        pair.carry()
        _ = pair.server.handshake()
        pair.server.receive(record)
        #expect(pair.server.handshake().error?.fault == .peer)
    }

    @Test(arguments: versions, Side.allCases)
    func aDoubledChangeCipherSpecIsThePeers(version: TLSProtocolVersion, side: Side) throws {
        let pair = try Fixture(version).pair()
        let (victim, other) = side == .server ? (pair.server, pair.client) : (pair.client, pair.server)
        for _ in 0..<6 {
            _ = victim.handshake()
            other.received.append(victim.output.readableBytes)
            victim.output.consume(victim.output.count)
            _ = other.handshake()
            let bytes = Array(other.output.readableBytes)
            other.output.consume(bytes.count)
            victim.receive(Mutation.doublingChangeCipherSpecs(bytes))
        }
        if let error = victim.handshake().error ?? victim.readAll().end.error { #expect(error.fault == .peer, "\(error)") }
    }

    @Test(arguments: versions)
    func anEndBehindTheServersFirstFlightIsThePeers(version: TLSProtocolVersion) throws {
        let pair = try Fixture(version).pair()
        _ = pair.client.handshake()
        pair.carry()
        _ = pair.server.handshake()
        pair.server.receiveEndOfFile()
        #expect(pair.server.handshake().error?.code == .closedDuringHandshake)
    }

    /// The written bytes must come from this side.
    @Test func aRefusedWriteOfOursIsNotThePeers() throws {
        let pair = try Fixture().pair()
        pair.shakeHands()
        pair.client.shutdown()
        #expect(pair.client.write("x").error?.fault == .system)
    }
}

extension TLSProtocolVersion {
    fileprivate var hashValueForSeed: Int { self == .tls12 ? 12 : 13 }
}

/// A modification of one flight by an attacker or a fault.
enum Mutation {
    static func apply(to bytes: inout [UInt8], _ recorded: [[UInt8]], _ random: inout SeededGenerator) -> String {
        let kind = Int.random(in: 0..<9, using: &random)
        let place = bytes.isEmpty ? 0 : Int.random(in: 0..<bytes.count, using: &random)
        switch kind {
        case 0 where !bytes.isEmpty: bytes[place] ^= UInt8.random(in: 1...255, using: &random)
        case 1: bytes.removeSubrange(place...)
        case 2: bytes.insert(contentsOf: [20, 3, 3, 0, 1, 1], at: boundary(near: place, in: bytes))
        case 3: bytes.insert(contentsOf: alert(&random), at: boundary(near: place, in: bytes))
        case 4: bytes = alert(&random)
        case 5: bytes += recorded.randomElement(using: &random) ?? []
        case 6: bytes = recorded.randomElement(using: &random) ?? []
        case 7: bytes = doublingChangeCipherSpecs(bytes)
        default:
            for _ in 0..<4 where !bytes.isEmpty {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
        }
        return "kind \(kind) at \(place)"
    }

    private static func alert(_ random: inout SeededGenerator) -> [UInt8] {
        [
            21, 3, UInt8.random(in: 0...4, using: &random), 0, 2, UInt8.random(in: 0...3, using: &random),
            UInt8.random(in: 0...120, using: &random),
        ]
    }

    /// Returns the start of the record that contains `place`.
    private static func boundary(near place: Int, in bytes: [UInt8]) -> Int {
        var start = 0
        while start + 5 <= bytes.count {
            let next = start + 5 + Int(bytes[start + 3]) * 256 + Int(bytes[start + 4])
            if next > place { return start }
            start = next
        }
        return min(start, bytes.count)
    }

    static func doublingChangeCipherSpecs(_ bytes: [UInt8]) -> [UInt8] {
        var result: [UInt8] = []
        var start = 0
        while start + 5 <= bytes.count {
            let next = min(bytes.count, start + 5 + Int(bytes[start + 3]) * 256 + Int(bytes[start + 4]))
            result += bytes[start..<next]
            if bytes[start] == 20 { result += bytes[start..<next] }
            start = next
        }
        return result + bytes[start...]
    }
}
