import AsyncSocketsTesting
import Glibc
import SocketBuffers

@testable import SocketTLS

extension FuzzTarget {
    /// Whole TLS handshakes and data. The input alters the bytes on the way.
    static let tlsHandshakes = FuzzTarget(name: "tls-handshakes", maximumLength: 4096) { input in
        var input = input
        let (flags, mode) = (input.byte(), input.byte())
        let (client, server) = flags & 64 == 0 ? try settings(flags) : try settingsWithKey()
        var alterations: [[Tampering]] = [[], []]
        if mode & 3 != 0 {
            // A peer that sends the input instead of, or after, its own messages.
            let place = mode & 4 == 0 ? 0 : input.number()
            alterations[mode & 3 == 1 ? 0 : 1] = [.inject(input.all(), at: place)] + (mode & 8 == 0 ? [] : [.truncate(at: place)])
        }
        let isUnaltered = mode & 3 == 0 && input.isEmpty
        while !input.isEmpty { alterations[Int(input.byte() & 1)].append(alteration(&input)) }
        let pair = try EnginePair(client, server, fromClient: alterations[0], fromServer: alterations[1])
        pair.shakeHands()
        let error = pair.clientError ?? pair.serverError
        try require(pair.isComplete || !isUnaltered, "an ordinary handshake fails: \(String(describing: error))")
        try exchange(pair, earlyData: client.earlyData?.bytes ?? [], isUnaltered: isUnaltered)
    }

    private static func settings(_ flags: UInt8) throws -> (TLSClientSettings, TLSServerSettings) {
        var (client, server) = (FixedIdentity.client, FixedIdentity.server)
        let version: TLSProtocolVersion = flags & 1 == 0 ? .tls13 : .tls12
        (client.minimumVersion, client.maximumVersion) = (version, version)
        (server.minimumVersion, server.maximumVersion) = (flags & 2 == 0 ? version : .tls12, version)
        if flags & 4 != 0 {
            server.clients = .certificates(.required)
            server.trustRoots = .certificates([FixedIdentity.root])
            client.identity = FixedIdentity.identity
        }
        if flags & 8 != 0 { server.sessionTickets = .issued(1) }
        if flags & 16 != 0 { (client.applicationProtocols, server.applicationProtocols) = (["a", "b"], ["b"]) }
        if flags & 32 != 0 {
            server.sessionTickets = .issued(1)
            client.resumption = .inMemory
            if flags & 21 == 0 { server.acceptedEarlyData = TLSAcceptedEarlyData(upTo: 1000) }
            if let session = try session(client, server) { client.resumption = .session(session) }
            if flags & 21 == 0 { client.earlyData = TLSEarlyData([1, 2, 3]) }
        }
        return (client, server)
    }

    /// A session from an unaltered connection.
    private static func session(_ client: TLSClientSettings, _ server: TLSServerSettings) throws -> TLSResumableSession? {
        let pair = try EnginePair(client, server)
        pair.shakeHands()
        try require(pair.isComplete, "an ordinary handshake fails: \(String(describing: pair.clientError ?? pair.serverError))")
        try require(try pair.exchange([1], from: .server) == [1], "an ordinary connection loses bytes")
        return pair.client.session?.resumable
    }

    private static func settingsWithKey() throws -> (TLSClientSettings, TLSServerSettings) {
        let key = try TLSPreSharedKey(identity: "device", key: [UInt8](repeating: 7, count: 32))
        return (.client(serverName: FixedIdentity.name, preSharedKey: key), .server(preSharedKeys: TLSPreSharedKeys(key)))
    }

    private static func alteration(_ input: inout FuzzInput) -> Tampering {
        let kind = input.byte() % 6
        let place = input.number() % 4096
        switch kind {
        case 0, 1: return .alter(at: place, xor: max(1, input.byte()))
        case 2: return .drop(place..<place + 1 + Int(input.byte()))
        case 3: return .inject(input.take(Int(input.byte())), at: place)
        case 4: return .newSegment(at: place)
        default: return .truncate(at: place)
        }
    }

    /// What one side reads is an unaltered prefix of what the other side has written.
    private static func exchange(_ pair: EnginePair, earlyData: [UInt8], isUnaltered: Bool) throws {
        guard pair.isComplete else { return }
        let message = [UInt8]((0..<3000).map { UInt8($0 % 251) })
        for (from, to) in [(pair.client, pair.server), (pair.server, pair.client)] {
            let buffer = PreBuffer()
            guard case .accepted = message.withUnsafeBytes({ from.write($0) }) else { continue }
            for _ in 0..<100 where pair.carry() {}
            reading: while true {
                switch to.read(into: buffer, limit: 1 << 16) {
                case .bytes: continue
                case .incomplete, .closed, .truncated, .failed: break reading
                }
            }
            // Early data that the server has not accepted is lost.
            let isExpected = [message, earlyData + message].contains { $0.starts(with: buffer.readableBytes) }
            try require(buffer.count >= message.count || !isUnaltered, "an ordinary connection loses bytes")
            try require(isExpected, "other bytes were read than were written")
        }
        pair.client.shutdown()
        for _ in 0..<100 where pair.carry() {}
        let buffer = PreBuffer()
        _ = pair.server.read(into: buffer, limit: 1 << 16)
        pair.server.shutdown()
    }

    /// Whole DTLS handshakes and data, with datagrams that are lost, repeated, altered or forged.
    static let dtlsHandshakes = FuzzTarget(name: "dtls-handshakes", maximumLength: 4096) { input in
        var input = input
        let isUnaltered = input.rest.allSatisfy { $0 == 0 }
        let wire = DatagramWire(
            client: try engine(FixedIdentity.datagramClient.values), server: try engine(FixedIdentity.datagramServer.values))
        var timeouts = 0
        for _ in 0..<32 {
            _ = (wire.client.handshake(), wire.server.handshake())
            if wire.carry(&input) { continue }
            guard timeouts < 3, wire.retransmit() else { break }
            timeouts += 1
        }
        let areEstablished = wire.client.isEstablished && wire.server.isEstablished
        try require(areEstablished || !isUnaltered, "an ordinary handshake fails")
        let messages = (1...4).map { [UInt8](repeating: UInt8($0), count: 10 * $0) }
        for (from, to) in [(wire.client, wire.server), (wire.server, wire.client)] where from.isEstablished {
            for message in messages { _ = message.withUnsafeBytes { from.write($0) } }
            for _ in 0..<8 where wire.carry(&input) {}
            var expected = messages
            let buffer = PreBuffer()
            while case .bytes(let count) = to.read(into: buffer) {
                let message = Array(buffer.readableBytes.prefix(count))
                guard let place = expected.firstIndex(of: message) else {
                    throw FuzzFailure(description: "a message is altered or read twice: \(message)")
                }
                expected.remove(at: place)
                buffer.consume(count)
            }
            try require(expected.isEmpty || !isUnaltered, "an ordinary connection loses messages")
        }
    }

    private static func engine(_ settings: TLSSettingValues) throws -> DTLSEngine {
        let engine = try DTLSEngine(
            context: TLSContext.context(for: settings, over: .datagrams), settings: settings, size: 600)
        engine.setFirstTimeout(seconds: 0.001)
        return engine
    }
}

/// Carries datagrams. The input chooses what happens to each of them.
private struct DatagramWire {
    let client: DTLSEngine
    let server: DTLSEngine

    /// Waits until a timer has expired, and lets its side retransmit. Returns false if no timer is running.
    func retransmit() -> Bool {
        let engines = [client, server]
        guard let next = engines.compactMap(\.secondsToTimeout).min() else { return false }
        poll(nil, 0, CInt(min(next, 0.1) * 1000) + 1)
        for engine in engines { _ = engine.handleTimeout() }
        return true
    }

    /// Returns false if there was nothing to carry.
    func carry(_ input: inout FuzzInput) -> Bool {
        var hasMoved = false
        for (from, to) in [(client, server), (server, client)] {
            var datagrams: [[UInt8]] = []
            from.sendOutput { output in
                datagrams = output.map { Array($0) }
                return output.count
            }
            for datagram in datagrams { for sent in altered(datagram, &input) { sent.withUnsafeBytes { to.receive($0) } } }
            hasMoved = hasMoved || !datagrams.isEmpty
        }
        return hasMoved
    }

    private func altered(_ datagram: [UInt8], _ input: inout FuzzInput) -> [[UInt8]] {
        var copy = datagram
        switch input.byte() {
        case 1: return []
        case 2: return [datagram, datagram]
        case 3, 4:
            let place = input.number() % max(1, copy.count)
            copy[place] ^= max(1, input.byte())
            return [copy]
        case 5: return [Array(datagram.prefix(input.number() % 600))]
        case 6: return [input.part(), datagram]
        case 7: return [datagram, input.part()]
        case 8:
            // The original also arrives, so that the handshake can continue.
            let place = input.number() % max(1, copy.count)
            copy.replaceSubrange(place..<min(copy.count, place + 4), with: input.take(4))
            return [copy, datagram]
        default: return [datagram]
        }
    }
}
