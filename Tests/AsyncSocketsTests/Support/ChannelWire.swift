import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketTLS
import SocketTestSupport

@testable import AsyncSockets

/// Two channels and a wire between them, all on one thread. Data moves only when the test carries it.
final class ChannelWire {
    let client: ChannelEnd
    let server: ChannelEnd
    private var up: Direction
    private var down: Direction
    /// The maximum number of bytes to carry at a time.
    private let chunk: Int

    private struct Direction {
        let source: RawSocket
        var waiting: ArraySlice<UInt8> = []
        var hasEnded = false
    }

    init(chunk: Int = .max) throws {
        let (client, atClient) = try ChannelEnd.pair()
        let (server, atServer) = try ChannelEnd.pair()
        (self.client, self.server, self.chunk) = (client, server, chunk)
        (up, down) = (Direction(source: atClient), Direction(source: atServer))
    }

    /// Returns channels that have completed the handshake.
    static func secure(_ version: TLSProtocolVersion, chunk: Int = .max) throws -> ChannelWire {
        let wire = try ChannelWire(chunk: chunk)
        try wire.beginTLS(version)
        let answers = try wire.shakeHands()
        guard answers.client.isComplete, answers.server.isComplete else { throw Unexpected(description: "\(answers)") }
        return wire
    }

    func beginTLS(_ version: TLSProtocolVersion, _ change: (inout TLSClientSettings) -> Void = { _ in }) throws {
        var settings = try TestCertificates.client().only(version)
        change(&settings)
        try client.beginTLS(settings)
        try server.beginTLS(TestCertificates.server().only(version))
    }

    /// Continues the handshake until no more data moves.
    func shakeHands() throws -> (client: ChannelEnd.HandshakeAnswer, server: ChannelEnd.HandshakeAnswer) {
        while true {
            let answers = (client: client.handshake(), server: server.handshake())
            let hasMoved = try carry()
            if hasMoved { continue }
            if case .more = answers.client { continue }
            if case .more = answers.server { continue }
            return answers
        }
    }

    /// Carries the next piece in each direction. Returns false if there was none.
    func carry() throws -> Bool {
        let hasMovedUp = try Self.carry(&up, chunk, to: down.source, server)
        let hasMovedDown = try Self.carry(&down, chunk, to: up.source, client)
        return hasMovedUp || hasMovedDown
    }

    private static func carry(
        _ direction: inout Direction, _ chunk: Int, to target: RawSocket, _ end: ChannelEnd
    ) throws -> Bool {
        if direction.waiting.isEmpty, !direction.hasEnded, direction.source.hasInput {
            direction.waiting = try direction.source.receive()[...]
            direction.hasEnded = direction.waiting.isEmpty
            if direction.hasEnded {
                target.finish()
                end.channel.note([.readable, .readHangup])
                return true
            }
        }
        guard !direction.waiting.isEmpty else { return false }
        let piece = direction.waiting.prefix(chunk)
        try target.send(piece)
        direction.waiting = direction.waiting.dropFirst(piece.count)
        end.channel.note(.readable)
        return true
    }

    /// Carries the server's data in `count` pieces. Each recv returns only one of them, although all are in
    /// the kernel.
    func carryDown(inPieces count: Int) throws {
        let bytes = try down.source.receive()
        let size = (bytes.count + count - 1) / count
        for start in stride(from: 0, to: bytes.count, by: size) {
            sendWithDescriptor(Array(bytes[start..<min(start + size, bytes.count)]), to: up.source.descriptor)
        }
        client.channel.note(.readable)
    }

    /// Cuts the server's direction: sends a FIN to the client after the carried data.
    func cutDown() {
        down.hasEnded = true
        down.waiting = []
        up.source.finish()
        client.channel.note([.readable, .readHangup])
    }

    /// Carries and receives until no more data moves. Returns what `end` has received.
    func receive(at end: ChannelEnd) throws -> [UInt8] {
        var received: [UInt8] = []
        repeat { received += end.fillAll() } while try carry()
        return received
    }
}

extension ChannelEnd {
    func beginTLS(_ settings: TLSSettings<some TLSRole.Side>) throws {
        let context = try TLSContext.context(for: settings)
        let engine = try TLSEngine(context: context, settings: settings)
        driver = HandshakeDriver(TLSRequest(settings: settings.values, context: context))
        channel.beginTLS(engine, feeding: reads)
    }

    /// Receives all available data.
    func fillAll() -> [UInt8] {
        while true {
            if case .nothing = fill() { return takeBytes() }
        }
    }

    /// Receives until the end. Returns the data before it.
    func receiveAll() throws -> [UInt8] {
        var received: [UInt8] = []
        while !channel.hasNews {
            try wait(for: Int16(POLLIN))
            channel.expectBytes()
            received += fillAll()
        }
        return received
    }
}
