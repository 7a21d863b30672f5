internal import Foundation
internal import Glibc
internal import SocketBuffers

/// A datagram relay between a client and a server that drops, duplicates, delays, reorders and corrupts
/// datagrams with a seeded generator.
package final class DatagramRelay: Sendable {
    /// The percentages of affected datagrams.
    package struct Harm: Sendable {
        package var loss = 0
        package var repetition = 0
        /// Delayed until others have passed.
        package var delay = 0
        package var corruption = 0

        package init(loss: Int = 0, repetition: Int = 0, delay: Int = 0, corruption: Int = 0) {
            (self.loss, self.repetition, self.delay, self.corruption) = (loss, repetition, delay, corruption)
        }

        /// Returns the same percentage for each, optionally with corruption.
        package static func all(_ part: Int, corrupts: Bool) -> Harm {
            Harm(loss: part, repetition: part, delay: part, corruption: corrupts ? part : 0)
        }
    }

    /// The maximum delay of a datagram in milliseconds.
    private static let longestDelay = 8

    private struct State {
        var harm: Harm
        var isOver = false
        var seen: [[UInt8]] = []
        var counts = (fromClient: 0, fromServer: 0)
    }

    /// Transforms a datagram before it is harmed.
    package typealias Treatment = @Sendable (_ datagram: [UInt8], _ isFromClient: Bool) -> [[UInt8]]

    private let front: CInt
    private let back: CInt
    private let treatment: Treatment?
    private let state: Locked<State>
    /// The port for the client.
    package let port: UInt16

    /// - Parameter server: The port of the server on 127.0.0.1.
    package init(to server: UInt16, harm: Harm = Harm(), seed: UInt64 = 1, treatment: Treatment? = nil) throws {
        self.treatment = treatment
        let back = try Self.socket()
        front = try Self.socket()
        self.back = back
        var address = Self.loopback(server)
        let size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isConnected = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.connect(back, $0, size) == 0 }
        }
        guard isConnected else { throw RelayFailure(errno: errno) }
        port = try Self.port(of: front)
        state = Locked(State(harm: harm))
        start(SeededGenerator(seed: seed))
    }

    private func start(_ generator: SeededGenerator) {
        let thread = Thread { [self] in run(generator) }
        thread.name = "DatagramRelay"
        thread.start()
    }

    /// Stops the relay. Its sockets close when its thread exits.
    package func close() {
        state.withLock { $0.isOver = true }
    }

    package func setHarm(_ harm: Harm) {
        state.withLock { $0.harm = harm }
    }

    /// All received datagrams, unmodified.
    package var seen: [[UInt8]] { state.withLock { $0.seen } }
    package var countFromClient: Int { state.withLock { $0.counts.fromClient } }
    package var countFromServer: Int { state.withLock { $0.counts.fromServer } }

    private struct RelayFailure: Error { let errno: CInt }

    private static func loopback(_ port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        return address
    }

    private static func socket() throws -> CInt {
        let socket = Glibc.socket(AF_INET, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        var address = loopback(0)
        let size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.bind(socket, $0, size) == 0 }
        }
        guard socket >= 0, isBound else { throw RelayFailure(errno: errno) }
        return socket
    }

    private static func port(of socket: CInt) throws -> UInt16 {
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isKnown = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(socket, $0, &size) == 0 }
        }
        guard isKnown else { throw RelayFailure(errno: errno) }
        return UInt16(bigEndian: address.sin_port)
    }

    // MARK: - The thread

    private struct Held {
        let bytes: [UInt8]
        let isFromClient: Bool
        let due: ContinuousClock.Instant
    }

    private func run(_ seeded: SeededGenerator) {
        var generator = seeded
        var client: sockaddr_in?
        var held: [Held] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while !state.withLock({ $0.isOver }) {
            var polls = [
                pollfd(fd: front, events: Int16(POLLIN), revents: 0), pollfd(fd: back, events: Int16(POLLIN), revents: 0),
            ]
            poll(&polls, 2, held.isEmpty ? 20 : 1)
            for isFromClient in [true, false] {
                while let bytes = receive(isFromClient, &buffer, &client) {
                    held += treat(bytes, isFromClient, &generator)
                }
            }
            let now = ContinuousClock.now
            for datagram in held where datagram.due <= now { send(datagram, to: client) }
            held.removeAll { $0.due <= now }
        }
        Glibc.close(front)
        Glibc.close(back)
    }

    private func receive(_ isFromClient: Bool, _ buffer: inout [UInt8], _ client: inout sockaddr_in?) -> [UInt8]? {
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let count = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                recvfrom(isFromClient ? front : back, &buffer, buffer.count, 0, $0, &size)
            }
        }
        // A port without a listener causes a single error.
        guard count >= 0 else { return nil }
        if isFromClient { client = address }
        return Array(buffer.prefix(count))
    }

    private func treat(_ bytes: [UInt8], _ isFromClient: Bool, _ generator: inout SeededGenerator) -> [Held] {
        let harm = state.withLock { state in
            state.seen.append(bytes)
            if isFromClient { state.counts.fromClient += 1 } else { state.counts.fromServer += 1 }
            return state.harm
        }
        let treated = treatment?(bytes, isFromClient) ?? [bytes]
        return treated.flatMap { suffer(harm, $0, isFromClient, &generator) }
    }

    private func suffer(_ harm: Harm, _ bytes: [UInt8], _ isFromClient: Bool, _ generator: inout SeededGenerator) -> [Held] {
        func happens(_ part: Int) -> Bool { part > 0 && Int.random(in: 0..<100, using: &generator) < part }
        if happens(harm.loss) { return [] }
        var bytes = bytes
        if happens(harm.corruption), let place = bytes.indices.randomElement(using: &generator) {
            bytes[place] ^= UInt8.random(in: 1...255, using: &generator)
        }
        return (0..<(happens(harm.repetition) ? 2 : 1)).map { _ in
            let delay = happens(harm.delay) ? Int.random(in: 1...Self.longestDelay, using: &generator) : 0
            return Held(bytes: bytes, isFromClient: isFromClient, due: .now + .milliseconds(delay))
        }
    }

    private func send(_ datagram: Held, to client: sockaddr_in?) {
        if datagram.isFromClient {
            _ = Glibc.send(back, datagram.bytes, datagram.bytes.count, CInt(MSG_NOSIGNAL))
        } else if var client {
            let size = socklen_t(MemoryLayout<sockaddr_in>.size)
            withUnsafePointer(to: &client) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    _ = sendto(front, datagram.bytes, datagram.bytes.count, CInt(MSG_NOSIGNAL), $0, size)
                }
            }
        }
    }
}
