import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Two operations at the same time, one of which is late: an upgrade and the operations before it, two
/// closes, and the two directions of a body.
@Suite(.timeLimit(.patient)) struct LateCompanionTests {
    // MARK: - startTLS after a read and a write

    enum Late: CaseIterable, Sendable { case read, write, readOfTwo, writeOfTwo }

    /// The handshake never starts, and the connection closes with the error of the late operation.
    @Test(arguments: Late.allCases, Link.Delivery.allCases)
    func anUpgradeBehindALateOperationNeverBegins(_ late: Late, _ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        let isOfRead = late == .read || late == .readOfTwo
        let large = Data(count: 16 << 20)
        if late == .readOfTwo {
            link.client.write(large, withTimeout: .patient, tag: 1)
        } else if late == .read {
            link.client.write(Data("x"), withTimeout: .patient, tag: 1)
            #expect(try await link.atClient.wrote() == 1)
        }
        if late == .writeOfTwo { link.client.readData(toLength: 10, withTimeout: .patient, tag: 2) }
        if isOfRead {
            link.client.readData(toLength: 10, withTimeout: 0.05, tag: 3)
        } else {
            link.client.write(large, withTimeout: 0.05, tag: 4)
        }
        try link.client.beginTLS(settings: TestCertificates.client())
        link.client.write(Data("secret"), withTimeout: .patient, tag: 5)
        let code = try await link.atClient.disconnected()?.code
        #expect(code == (isOfRead ? .readTimeout : .writeTimeout))
        #expect(!link.client.isSecure)
        // Everything that was sent is plaintext from before the upgrade.
        link.server.readData(withTimeout: .patient, tag: 6)
        var received = Data()
        while case .read(let data, _) = await link.atServer.next() {
            received += data
            link.server.readData(withTimeout: .patient, tag: 6)
        }
        #expect(received.allSatisfy { $0 == 0 || $0 == UInt8(ascii: "x") })
    }

    /// Both operations are slow and complete before their limits. Then the handshake starts.
    @Test(arguments: [false, true]) func anUpgradeBeginsAfterTheSlowerOperation(readIsSlower: Bool) async throws {
        let (kernel, victim) = try FullKernel.make(.task)
        let (client, recorder) = (victim.socket, Recorder())
        client.setInlineDelegate(recorder)
        let count = kernel.fill()
        client.write(Data("plain"), withTimeout: .patient, tag: 1)
        client.readData(toLength: 5, withTimeout: .patient, tag: 2)
        try client.beginTLS(settings: TestCertificates.client())
        func read() async throws {
            try kernel.peer.send("reply")
            #expect(try await recorder.readText() == "reply")
        }
        if !readIsSlower { try await read() }
        try await client.turn("the upgrade is pending") { connection in
            if case .queuedTLS? = connection.upgrade?.state { true } else { false }
        }
        try await kernel.drain(count)
        #expect(try await kernel.peer.received(exactly: 5) == Array("plain".utf8))
        if readIsSlower {
            try await client.turn("the write is complete") { $0.data.writes.packets.isAtStartTLS }
            #expect(!kernel.peer.hasInput)
            try await read()
        }
        if !readIsSlower { #expect(try await recorder.wrote() == 1) }
        let server = try StyledSocket(.task, adopting: kernel.peer)
        try await server.startTLS(TestCertificates.server())
        try await recorder.secured()
    }

    // MARK: - Two closes

    enum Second: CaseIterable, Sendable { case sameLimit, shorterLimit, cancelled, disconnect, reset }

    /// A pending write delays the first close. The second close may close the connection immediately.
    @Test(arguments: Second.allCases, [false, true])
    func twoClosesEndTheConnectionOnce(_ second: Second, isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, bytes) = (pair.client, pattern(16 << 20))
        let writing = Task.immediate { try await client.write(bytes) }
        try await eventually("it is pending") { client.writeProgress != nil }
        let first = Task.immediate { try await client.close(timeout: .patient) }
        var closing: Task<Void, any Error>?
        switch second {
        case .sameLimit, .cancelled: closing = Task.immediate { try await client.close(timeout: .patient) }
        case .shorterLimit: closing = Task.immediate { try await client.close(timeout: .milliseconds(20)) }
        case .disconnect: client.disconnect()
        case .reset: client.disconnectWithReset()
        }
        if second == .cancelled { closing?.cancel() }
        if second == .sameLimit {
            let isWhole = try await pair.server.readToEnd(maxLength: bytes.count) == bytes
            #expect(isWhole)
        }
        let outcomes = [await writing.outcome, await first.outcome, await closing?.outcome ?? .served]
        switch second {
        case .sameLimit: #expect(outcomes == [.served, .served, .served])
        case .shorterLimit: #expect(outcomes == [.failed(.writeTimeout), .failed(.writeTimeout), .failed(.writeTimeout)])
        case .cancelled: #expect(outcomes == [.failed(.closed), .failed(.closed), .cancelled])
        case .disconnect, .reset: #expect(outcomes == [.failed(.closed), .failed(.closed), .served])
        }
        #expect(client.isDisconnected)
        // A later close returns immediately, and reports the same loss.
        #expect(await outcome { try await client.close() } == (second == .sameLimit ? .served : outcomes[0]))
    }

    /// Each of many closes of one socket returns, and the peer receives everything once.
    @Test(arguments: [false, true]) func manyClosesReturnTogether(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let bytes = pattern(4 << 20)
        let writing = Task.immediate { try await pair.client.write(bytes) }
        let closing = (0..<10).map { _ in Task.immediate { try await pair.client.close(timeout: .patient) } }
        let isWhole = try await pair.server.readToEnd(maxLength: bytes.count) == bytes
        #expect(isWhole)
        try await writing.value
        for close in closing { try await close.value }
    }

    // MARK: - Bodies

    enum Exit: CaseIterable, Sendable { case cancelled, thrown, deadline }

    private struct Stop: Error {}

    /// The body of a connection is interrupted while one child task writes to a peer that does not read, and
    /// another one reads. Both return, and the connection closes with the rest of the write unsent.
    @Test(arguments: Exit.allCases, [false, true])
    func aBodyThatIsInterruptedReleasesBothDirections(_ exit: Exit, isSecure: Bool) async throws {
        let listener = try RawSocket.listening()
        let (port, waits, outcomes) = (try listener.localPort, try TestSignal(), Findings<Outcome>())
        let settings = isSecure ? try TestCertificates.client() : nil
        let body = Task {
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: settings) { socket in
                try await withDeadline(exit == .deadline ? .milliseconds(300) : .patient * 10) {
                    try await Self.interrupt(socket, exit, waits, outcomes)
                }
            }
        }
        // Waiting in `accepted()` would occupy the thread that the body needs to connect.
        try await eventually("it has connected") { listener.hasInput }
        let peer = try AsyncSocket(adopting: listener.accepted().duplicate())
        if isSecure { try await peer.startTLS(settings: TestCertificates.server()) }
        if exit == .cancelled {
            try await waits.wait()
            body.cancel()
        }
        switch (exit, await body.result) {
        case (.cancelled, .failure(let error)): #expect(error is CancellationError)
        case (.thrown, .failure(let error)): #expect(error is Stop)
        case (.deadline, .failure(let error)): #expect(Outcome(error) == .failed(.deadlineExceeded))
        case (_, .success): Issue.record("the body returned")
        }
        #expect(outcomes.all.count == 2 && !outcomes.all.contains(.served))
        if exit != .deadline { #expect(outcomes.all == [.cancelled, .cancelled]) }
        // The peer must not mistake the part for the whole.
        let received = Locked(0)
        let rest = await outcome {
            while let bytes = try await peer.read() { received.withLock { $0 += bytes.count } }
        }
        // Without a part of the write, there was nothing to cut.
        if isSecure { #expect(rest == .failed(.truncated) || rest == .served && received.withLock { $0 } == 0) }
    }

    private static func interrupt(
        _ socket: AsyncSocket, _ exit: Exit, _ waits: TestSignal, _ outcomes: Findings<Outcome>
    ) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            let operations: [@Sendable () async throws -> Void] = [
                { try await socket.write(Data(count: 64 << 20)) }, { _ = try await socket.read(exactly: 100) },
            ]
            for operation in operations {
                group.addTask {
                    do {
                        try await operation()
                        outcomes.add(.served)
                    } catch {
                        outcomes.add(Outcome(error))
                        throw error
                    }
                }
            }
            if exit != .deadline {
                group.addTask {
                    try await eventually("both wait") { socket.writeProgress != nil && socket.readProgress != nil }
                    waits.fire()
                    if exit == .thrown { throw Stop() }
                }
            }
            // The first error cancels the other children.
            for try await _ in group {}
        }
    }
}
