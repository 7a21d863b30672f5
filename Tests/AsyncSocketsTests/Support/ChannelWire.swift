import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketTLS
import SocketTestSupport

@testable import AsyncSockets

/// Two channels and a wire between them, all on one thread: nothing moves unless the test has it carried.
final class ChannelWire {
    let client: ChannelEnd
    let server: ChannelEnd
    private var up: Direction
    private var down: Direction
    /// The most bytes that are carried at a time.
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

    /// Channels that have shaken hands.
    static func secure(_ version: TLSVersion, chunk: Int = .max) throws -> ChannelWire {
        let wire = try ChannelWire(chunk: chunk)
        try wire.beginTLS(version)
        let answers = try wire.shakeHands()
        guard answers.client.isComplete, answers.server.isComplete else { throw Unexpected(description: "\(answers)") }
        return wire
    }

    func beginTLS(_ version: TLSVersion, _ change: (inout TLSClientSettings) -> Void = { _ in }) throws {
        var settings = try TestCertificates.client().only(version)
        change(&settings)
        try client.beginTLS(settings)
        try server.beginTLS(TestCertificates.server().only(version))
    }

    /// Goes on with the handshake until nothing moves any more.
    func shakeHands() throws -> (client: ByteChannel.HandshakeAnswer, server: ByteChannel.HandshakeAnswer) {
        while true {
            let answers = (client: client.channel.handshake(), server: server.channel.handshake())
            let hasMoved = try carry()
            if hasMoved { continue }
            if case .more = answers.client { continue }
            if case .more = answers.server { continue }
            return answers
        }
    }

    /// Delivers the next piece of each direction; false when there was none.
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

    /// Delivers what the server has sent in so many pieces; a recv brings one of them, though the kernel has
    /// all.
    func carryDown(inPieces count: Int) throws {
        let bytes = try down.source.receive()
        let size = (bytes.count + count - 1) / count
        for start in stride(from: 0, to: bytes.count, by: size) {
            sendWithDescriptor(Array(bytes[start..<min(start + size, bytes.count)]), to: up.source.descriptor)
        }
        client.channel.note(.readable)
    }

    /// Cuts what the server sends: a FIN for the client, behind what has been carried.
    func cutDown() {
        down.hasEnded = true
        down.waiting = []
        up.source.finish()
        client.channel.note([.readable, .readHangup])
    }

    /// Carries and receives until nothing moves any more; what `end` has received.
    func receive(at end: ChannelEnd) throws -> [UInt8] {
        var received: [UInt8] = []
        repeat { received += end.fillAll() } while try carry()
        return received
    }
}

extension ChannelEnd {
    func beginTLS(_ settings: TLSSettings<some TLSRole.Side>) throws {
        let engine = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
        channel.beginTLS(engine, feeding: reads)
    }

    /// Receives until there is nothing for now.
    func fillAll() -> [UInt8] {
        while true {
            if case .nothing = fill() { return takeBytes() }
        }
    }

    /// Receives until the end; what came before it.
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
