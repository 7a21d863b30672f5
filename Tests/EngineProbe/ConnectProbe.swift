internal import AsyncSockets
internal import Foundation
internal import SocketBuffers
internal import SocketCore
internal import SocketTestSupport

/// Attempts to connect leave nothing behind: no descriptor and no registration, however they end.
enum ConnectProbe {
    private static let rounds = 200

    static func run() throws {
        let loop = try EventLoop()
        let silent = try (0..<3).map { _ in try FullBacklog() }
        // The first time costs descriptors that stay: those of the loops and of the runtime.
        try disconnectWhileConnecting(to: silent, on: loop, rounds: 3)
        try timeOut(connectingTo: silent, on: loop)
        let before = try descriptorCount()
        try disconnectWhileConnecting(to: silent, on: loop, rounds: rounds)
        for _ in 0..<20 { try timeOut(connectingTo: silent, on: loop) }
        let after = try descriptorCount()
        guard after == before else { throw ProbeFailure(description: "\(before) descriptors became \(after)") }
        withExtendedLifetime(silent) {}
        print("\(rounds) disconnects and 20 timeouts left \(after) of \(before) descriptors and no registration")
    }

    /// At every moment: while resolving, with one attempt, with several.
    private static func disconnectWhileConnecting(to hosts: [FullBacklog], on loop: EventLoop, rounds: Int) throws {
        for round in 0..<rounds {
            let (client, witness) = makeClient(to: hosts, on: loop)
            try client.connect(toHost: "host.test", onPort: 1, withTimeout: 60)
            if round % 3 > 0 { try witness.awaitAttempts(round % 3 == 1 ? 1 : hosts.count) }
            client.disconnect()
            guard try witness.end() == nil else { throw ProbeFailure(description: "an error instead of a plain end") }
            try expectEmpty(loop)
            withExtendedLifetime((client, witness)) {}
        }
    }

    private static func timeOut(connectingTo hosts: [FullBacklog], on loop: EventLoop) throws {
        let (client, witness) = makeClient(to: hosts, on: loop)
        try client.connect(toHost: "host.test", onPort: 1, withTimeout: 0.02)
        guard try witness.end()?.code == .connectTimeout else { throw ProbeFailure(description: "no timeout") }
        try expectEmpty(loop)
        withExtendedLifetime((client, witness)) {}
    }

    private static func makeClient(to hosts: [FullBacklog], on loop: EventLoop) -> (AsyncSocket, Witness) {
        let witness = Witness()
        let client = AsyncSocket(inlineDelegate: witness)
        let addresses = hosts.map(\.address)
        client.stay(on: loop)
        client.resolver = Resolver(concurrency: 1) { _ in .success(addresses) }
        client.alternateAddressDelay = 0.001
        return (client, witness)
    }

    /// The registration ends right after the last callback.
    private static func expectEmpty(_ loop: EventLoop) throws {
        var patience = 100_000
        while loop.registrationCount > 0, patience > 0 {
            patience -= 1
            sched_yield()
        }
        guard loop.registrationCount == 0 else { throw ProbeFailure(description: "\(loop.registrationCount) registrations") }
    }

    /// The least of many counts: libdispatch opens a file now and then to count its workers, and closes it
    /// again.
    private static func descriptorCount() throws -> Int {
        var least = Int.max
        for _ in 0..<100 {
            least = min(least, try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count)
            sched_yield()
        }
        return least
    }
}

/// A delegate that counts attempts and waits for the end.
private final class Witness: AsyncSocketDelegate, Sendable {
    private let attempts = Mailbox<Void>()
    private let ends = Mailbox<AsyncSocketError?>()

    func awaitAttempts(_ count: Int) throws {
        for _ in 0..<count { try attempts.next() }
    }

    func end() throws -> AsyncSocketError? { try ends.next() }

    func socket(_ socket: AsyncSocket, connectionProgressed progress: ConnectionProgress) {
        if case .trying = progress { attempts.put(()) }
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) { ends.put(error) }
}
