internal import AsyncSockets
internal import Foundation
internal import SocketBuffers
internal import SocketCore
internal import SocketTestSupport

/// However attempts to connect end, no descriptor and no registration is left behind.
enum ConnectProbe {
    private static let rounds = 200

    static func run() throws {
        let loop = try SocketEventLoop()
        let silent = try (0..<3).map { _ in try FullBacklog() }
        // The first time opens descriptors that stay open, those of the loops and the runtime.
        try disconnectWhileConnecting(to: silent, on: loop, rounds: 3)
        try timeOut(connectingTo: silent, on: loop)
        let before = try descriptors()
        try disconnectWhileConnecting(to: silent, on: loop, rounds: rounds)
        for _ in 0..<20 { try timeOut(connectingTo: silent, on: loop) }
        try expectNoMore(than: before)
        withExtendedLifetime(silent) {}
        print("\(rounds) disconnects and 20 timeouts left \(before.count) descriptors and no registration")
    }

    /// At every stage: while resolving, with one attempt, and with several.
    private static func disconnectWhileConnecting(to hosts: [FullBacklog], on loop: SocketEventLoop, rounds: Int) throws {
        for round in 0..<rounds {
            let (client, witness) = makeClient(to: hosts, on: loop)
            try client.connect(toHost: "host.test", onPort: 1, withTimeout: .patient)
            if round % 3 > 0 { try witness.awaitAttempts(round % 3 == 1 ? 1 : hosts.count) }
            client.disconnect()
            guard try witness.end() == nil else { throw ProbeFailure(description: "an error instead of a plain end") }
            try expectEmpty(loop)
            withExtendedLifetime((client, witness)) {}
        }
    }

    private static func timeOut(connectingTo hosts: [FullBacklog], on loop: SocketEventLoop) throws {
        let (client, witness) = makeClient(to: hosts, on: loop)
        try client.connect(toHost: "host.test", onPort: 1, withTimeout: 0.02)
        guard try witness.end()?.code == .connectTimeout else { throw ProbeFailure(description: "no timeout") }
        try expectEmpty(loop)
        withExtendedLifetime((client, witness)) {}
    }

    private static func makeClient(to hosts: [FullBacklog], on loop: SocketEventLoop) -> (AsyncSocket, Witness) {
        let witness = Witness()
        let client = AsyncSocket(inlineDelegate: witness)
        let addresses = hosts.map(\.address)
        client.stay(on: loop)
        client.resolver = Resolver(concurrency: 1) { _ in .success(addresses) }
        client.alternateAddressDelay = .milliseconds(1)
        return (client, witness)
    }

    /// The registration ends right after the last callback.
    private static func expectEmpty(_ loop: SocketEventLoop) throws {
        var patience = 100_000
        while loop.registrationCount > 0, patience > 0 {
            patience -= 1
            sched_yield()
        }
        guard loop.registrationCount == 0 else { throw ProbeFailure(description: "\(loop.registrationCount) registrations") }
    }

    /// libdispatch occasionally opens files in `/proc` to count its workers, and closes them again. On a busy
    /// machine, they may stay open for a while.
    private static func expectNoMore(than before: [String: String]) throws {
        let clock = ContinuousClock()
        let end = clock.now + .seconds(10)
        var added = [String: String]()
        repeat {
            added = try descriptors().filter { before[$0.key] != $0.value }
            if added.isEmpty { return }
            sched_yield()
        } while clock.now < end
        throw ProbeFailure(description: "\(before.count) descriptors became more: \(added)")
    }

    /// Returns the open descriptors by number with their targets, except those of `/proc` and timers. A loop
    /// creates its two timers when it is created. libdispatch creates one for each clock when it is first
    /// needed.
    private static func descriptors() throws -> [String: String] {
        var open = [String: String]()
        for number in try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
            let link = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + number)
            guard let link else { continue }
            if !link.hasPrefix("/proc/"), link != "anon_inode:[timerfd]" { open[number] = link }
        }
        return open
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
