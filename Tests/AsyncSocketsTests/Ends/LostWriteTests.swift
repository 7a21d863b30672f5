import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Writes that are encrypted but not sent when the connection breaks.
@Suite(.timeLimit(.patient)) struct LostWriteTests {
    private static let piece = pattern(4096)

    /// Returns a secure connection whose peer reads nothing after the handshake. It uses a socket pair: once
    /// the kernel is full, it stays full until the peer reads.
    private func connect(_ version: TLSProtocolVersion) async throws -> (AsyncSocket, Recorder, peer: ChannelEnd, own: RawSocket)
    {
        let (peer, other) = try ChannelEnd.pair()
        let recorder = Recorder()
        let socket = try AsyncSocket(adopting: other.duplicate(), inlineDelegate: recorder)
        try peer.beginTLS(TestCertificates.server().only(version))
        try socket.beginTLS(settings: TestCertificates.client())
        var answer = peer.handshake()
        while answer.isIncomplete || answer.needsAnotherTurn {
            if answer.isIncomplete {
                try peer.wait(for: Int16(POLLIN))
                peer.channel.expectBytes()
            }
            answer = peer.handshake()
        }
        guard answer.isComplete else { throw Unexpected(description: "\(answer)") }
        try await recorder.secured()
        return (socket, recorder, peer, other)
    }

    /// Writes pieces until one is not complete and the kernel is full. Returns its number. All pieces have
    /// been encrypted.
    private func fill(_ socket: AsyncSocket, _ own: RawSocket, _ write: (Int) -> Void) async -> Int {
        var number = 0
        while true {
            write(number)
            await socket.settle()
            if socket.writeProgress != nil {
                fillKernel(behind: own)
                await socket.settle()
            }
            if let progress = socket.writeProgress {
                #expect(progress.bytesDone == Self.piece.count)
                return number
            }
            number += 1
        }
    }

    /// Fills the kernel's buffer with bytes that are never read.
    private func fillKernel(behind own: RawSocket) {
        let flags = Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL)
        while Self.piece.withUnsafeBytes({ send(own.descriptor, $0.baseAddress, $0.count, flags) }) > 0 {}
        while send(own.descriptor, "x", 1, flags) > 0 {}
    }

    /// The kernel has unread bytes from us, so that this is a reset for a socket pair too.
    private func reset(_ peer: ChannelEnd) throws {
        peer.channel.close(.reset, on: try SocketEventLoop())
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func aLostWriteIsNotToldAsWritten(_ version: TLSProtocolVersion, isClosing: Bool) async throws {
        let (socket, recorder, peer, own) = try await connect(version)
        let lost = await fill(socket, own) { socket.write(Self.piece, withTimeout: -1, tag: $0) }
        if isClosing { socket.disconnectAfterWriting() }
        try reset(peer)
        for expected in 0..<lost { #expect(try await recorder.wrote() == expected) }
        let told = await recorder.next()
        guard case .disconnected(let error) = told else { throw Unexpected(description: "\(told)") }
        #expect(error?.code == .connectionReset)
    }

    /// A task's second write is collected, and encrypted when the task suspends.
    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func aCollectedWriteStaysInTheQueueUntilTheKernelHasItsRecord(_ version: TLSProtocolVersion, isLate: Bool) async throws {
        let (socket, recorder, peer, own) = try await connect(version)
        let result = await Task(executorPreference: socket.executor) {
            await outcome {
                try await socket.write("first")
                fillKernel(behind: own)
                try await socket.write("second", timeout: isLate ? .milliseconds(50) : nil)
                guard isLate else { return Data() }
                return try await socket.read(exactly: 1, timeout: .patient)
            }
        }.value
        if isLate {
            #expect(result == .failed(.writeTimeout))
        } else {
            #expect(result == .served)
            try await eventually("it is pending") { socket.writeProgress != nil }
            try reset(peer)
            #expect(try await recorder.disconnected()?.code == .connectionReset)
            let error = await #expect(throws: AsyncSocketError.self) { try await socket.close() }
            #expect(error?.code == .connectionReset)
        }
        withExtendedLifetime(peer) {}
    }

    /// A small reply is added to the collected bytes, and is treated as complete. If the task has used up its
    /// time on the loop before the reply, nothing is collected any more, and the reply waits as well.
    @Test(arguments: [4_096, 60_000, 5], [false, true])
    func aLargeReplyToTheLastMessageWaitsForTheKernel(size: Int, isLate: Bool) async throws {
        let (peer, own) = try RawSocket.pair(waitLimit: .patient)
        try peer.send("one\r\ntwo\r\n")
        let socket = try AsyncSocket(adopting: own.duplicate())
        let connection = try #require(socket.connection)
        let (isCollecting, result) = try await Task(executorPreference: socket.executor) {
            #expect(try await socket.readLine() == "one")
            fillKernel(behind: own)
            try await socket.write("answer")
            if isLate { await JobBudget.renew() }
            #expect(try await socket.readLine() == "two")
            let isCollecting = connection.data.isCollecting
            let result = await outcome { try await socket.write(Data(count: size), timeout: .milliseconds(50)) }
            return (isCollecting, result)
        }.value
        if isLate { #expect(!isCollecting) }
        #expect(result == (isCollecting && size < 4_096 ? .served : .failed(.writeTimeout)))
        withExtendedLifetime(peer) {}
    }

    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func whoWaitsForALostWriteIsToldThatItFailed(_ version: TLSProtocolVersion, isClosing: Bool) async throws {
        let (socket, recorder, peer, own) = try await connect(version)
        var waiters: [CountingWaiter<Void>] = []
        let lost = await fill(socket, own) { _ in
            let waiter = CountingWaiter<Void>()
            socket.write(Self.piece, for: waiter)
            waiters.append(waiter)
        }
        if isClosing { socket.disconnectAfterWriting() }
        try reset(peer)
        #expect(try await recorder.disconnected()?.code == .connectionReset)
        for waiter in waiters[..<lost] { #expect(waiter.outcomes == [.served]) }
        #expect(waiters[lost].outcomes == [.failed(.connectionReset)])
    }
}
