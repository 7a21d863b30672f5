import AsyncSocketsTesting
import Glibc
import SocketBuffers
import SocketTestSupport
import Testing

@testable import SocketTLS

/// A DTLS client and server with a wire in memory, which can lose, duplicate, reorder and corrupt datagrams.
final class DatagramPair {
    /// The percentages of datagrams that the wire affects.
    struct Harm {
        var loss = 0
        var repetition = 0
        var reordering = 0
        var corruption = 0

        static func all(_ part: Int) -> Harm {
            Harm(loss: part, repetition: part, reordering: part, corruption: part)
        }
    }

    final class End {
        let engine: DTLSEngine
        var answer = TLSEngine.HandshakeAnswer.incomplete
        var questions: [PeerTrust] = []
        var decide: ((PeerTrust) -> Bool?)?
        /// Datagrams in transit to this side.
        var arriving: [[UInt8]] = []
        /// All datagrams that this side has sent.
        var sent: [[UInt8]] = []
        var messages: [[UInt8]] = []
        var end: TLSEngine.ReadAnswer?

        init(_ engine: DTLSEngine, firstTimeout: Double = 0.001) {
            self.engine = engine
            engine.setFirstTimeout(seconds: firstTimeout)
        }

        var error: TLSError? { if case .failed(let error) = answer { error } else { nil } }
        var isComplete: Bool { if case .complete = answer { true } else { false } }

        func shakeHands() {
            answer = engine.handshake()
            if case .awaitingTrust(let trust) = answer {
                questions.append(trust)
                if let decision = decide?(trust) {
                    engine.decideTrust(decision)
                    answer = engine.handshake()
                }
            }
        }

        func readAll() {
            let buffer = PreBuffer()
            while engine.isEstablished {
                let answer = engine.read(into: buffer)
                guard case .bytes(let count) = answer else {
                    if case .incomplete = answer { return }
                    return end = answer
                }
                messages.append(Array(buffer.readableBytes.prefix(count)))
                buffer.consume(count)
            }
        }

        func write(_ message: [UInt8]) -> TLSEngine.WriteAnswer { message.withUnsafeBytes { engine.write($0) } }

        func receive(_ datagram: [UInt8]) { datagram.withUnsafeBytes { engine.receive($0) } }

        /// Removes and returns the output, so that it does not arrive.
        func takeOutput() -> [[UInt8]] {
            var datagrams: [[UInt8]] = []
            engine.sendOutput { output in
                datagrams += output.map { Array($0) }
                return output.count
            }
            sent += datagrams
            return datagrams
        }

        /// Waits until the timer has expired once, and returns the retransmitted flight.
        func flightAfterTimeout() throws -> [[UInt8]] {
            var datagrams: [[UInt8]] = []
            for _ in 0..<60_000 where datagrams.isEmpty {
                #expect(engine.handleTimeout() == nil)
                datagrams = takeOutput()
                if datagrams.isEmpty { poll(nil, 0, 1) }
            }
            try #require(!datagrams.isEmpty, "nothing was sent again")
            return datagrams
        }
    }

    let client: End
    let server: End
    private var harm: Harm
    private var generator: SeededGenerator
    /// Datagrams that are delivered after later ones.
    private var delayed: [(End, [UInt8])] = []

    init(
        _ fixture: Fixture, size: Int = 1400, isSizeGiven: Bool = false, harm: Harm = Harm(), seed: UInt64 = 1
    ) throws {
        // OpenSSL gives up after twelve timeouts, which can happen on a busy machine while it reads one
        // flight. A lossy wire needs many timeouts, so they are short.
        let firstTimeout = harm.loss == 0 ? 0.05 : 0.001
        client = End(try fixture.datagramEngine(.client, size: size, isSizeGiven: isSizeGiven), firstTimeout: firstTimeout)
        server = End(try fixture.datagramEngine(.server, size: size, isSizeGiven: isSizeGiven), firstTimeout: firstTimeout)
        self.harm = harm
        generator = SeededGenerator(seed: seed)
    }

    /// Moves the output of both sides. Returns false if there was none.
    @discardableResult
    func carry() -> Bool {
        var hasMoved = false
        for (from, to) in [(client, server), (server, client)] {
            from.engine.sendOutput { datagrams in
                for datagram in datagrams {
                    from.sent.append(Array(datagram))
                    pass(Array(datagram), to: to)
                }
                hasMoved = hasMoved || !datagrams.isEmpty
                return datagrams.count
            }
        }
        for (end, datagram) in delayed { end.arriving.append(datagram) }
        delayed = []
        for end in [client, server] {
            for datagram in end.arriving { end.receive(datagram) }
            end.arriving = []
        }
        return hasMoved
    }

    private func happens(_ part: Int) -> Bool { part > 0 && Int.random(in: 0..<100, using: &generator) < part }

    private func pass(_ datagram: [UInt8], to end: End) {
        if happens(harm.loss) { return }
        var datagram = datagram
        if happens(harm.corruption), let place = datagram.indices.randomElement(using: &generator) { datagram[place] ^= 0x55 }
        for _ in 0..<(happens(harm.repetition) ? 2 : 1) {
            if happens(harm.reordering) { delayed.append((end, datagram)) } else { end.arriving.append(datagram) }
        }
    }

    /// Performs the handshake until both sides are done, or until no data moves and no timer is running.
    /// Waits for timers, and lets both sides give up after `time`.
    ///
    /// - Parameter waits: Whether to wait for timers.
    func shakeHands(waits: Bool = true, within time: Duration = .seconds(60)) {
        let end = ContinuousClock.now + time
        repeat {
            client.shakeHands()
            server.shakeHands()
            client.readAll()
            server.readAll()
            if carry() { continue }
            guard waits, waitForTimer() else { return }
        } while ContinuousClock.now < end
        for end in [client, server] where !end.isComplete {
            end.engine.abandonHandshake()
            end.answer = end.engine.handshake()
        }
    }

    /// Returns false if no timer is running on a side that continues.
    private func waitForTimer() -> Bool {
        let ends = [client, server].filter { $0.error == nil && !$0.isComplete }
        let times = ends.compactMap(\.engine.secondsToTimeout)
        guard let next = times.min() else { return false }
        // OpenSSL's timers use the system clock.
        poll(nil, 0, Int32(next * 1e3) + 1)
        for end in ends { _ = end.engine.handleTimeout() }
        return true
    }

    /// Sends a message and lets the other side read.
    func send(_ message: [UInt8], from side: Side) {
        let (from, to) = side == .client ? (client, server) : (server, client)
        guard case .accepted(message.count) = from.write(message) else {
            Issue.record("the message was not encrypted")
            return
        }
        carry()
        to.readAll()
    }

    /// From now on, datagrams are delivered reliably.
    func heal() { harm = Harm() }

    func corrupt() { harm = Harm(corruption: 100) }
}

extension Fixture {
    /// Returns settings that are valid for DTLS.
    static func forDatagrams() throws -> Fixture {
        var fixture = try Fixture(.tls12)
        fixture.useOnly(.dtls12)
        return fixture
    }

    func datagramEngine(
        _ side: Side, size: Int = 1400, isSizeGiven: Bool = false, defersWork: Bool = false
    ) throws -> DTLSEngine {
        let settings = side == .client ? client.values : server.values
        return try DTLSEngine(
            context: TLSContext.context(for: settings, over: .datagrams), settings: settings, size: size,
            isSizeGiven: isSizeGiven, defersWork: defersWork)
    }
}
