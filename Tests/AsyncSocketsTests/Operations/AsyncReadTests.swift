import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The reads for tasks.
@Suite(.timeLimit(.patient)) struct AsyncReadTests {
    private static let more = pattern(16 << 20)

    // MARK: - Any bytes

    @Test(arguments: [false, true])
    func bytesComeAsTheyAreAndNilAfterAnOrderlyEnd(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("hello")] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        var bytes = try #require(try await socket.read(maxLength: 2))
        #expect(bytes.count == 2 || bytes.count == 1)
        while let more = try await socket.read() { bytes += more }
        #expect(bytes == Data("hello"))
        #expect(try await socket.read() == nil)
        #expect(socket.isConnected)
    }

    @Test(arguments: [false, true])
    func aLateReaderGetsWhatCameBeforeTheEnd(isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket([.send("hello")] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        _ = try await peer.finish()
        var bytes = Data()
        while let more = try await socket.read() { bytes += more }
        #expect(bytes == Data("hello"))
        #expect(try await socket.read() == nil)
    }

    @Test(arguments: [false, true])
    func aReadThatWaitsLearnsOfTheEnd(isSecure: Bool) async throws {
        let mayEnd = try TestSignal()
        let (socket, _) = try await connectedSocket(
            [.wait(for: mayEnd)] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        let reads = (0..<3).map { _ in Task.immediate { try await socket.read() } }
        try await socket.readWaits()
        mayEnd.fire()
        for read in reads { #expect(try await read.value == nil) }
    }

    @Test(arguments: [false, true])
    func readsAreServedInTheOrderInWhichTheyAsked(isSecure: Bool) async throws {
        let maySend = try TestSignal()
        let (socket, _) = try await connectedSocket(
            [.wait(for: maySend), .send("0123456789abcdefghij", inPiecesOf: 3)], isSecure: isSecure)
        let reads = (0..<10).map { _ in Task.immediate { try await socket.read(exactly: 2) } }
        maySend.fire()
        var text = Data()
        for read in reads { text += try await read.value }
        #expect(text == Data("0123456789abcdefghij"))
    }

    // MARK: - Exact counts

    @Test(arguments: [false, true])
    func exactlySoManyBytesCome(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send(Array(Self.more))], isSecure: isSecure)
        #expect(try await socket.read(exactly: 0) == Data())
        var total = Data()
        for count in [1, 2, 1000, 65536, 65537, 0, 5_000_000] {
            let data = try await socket.read(exactly: count)
            #expect(data.count == count)
            total += data
        }
        total += try await socket.read(exactly: Self.more.count - total.count)
        #expect(total == Self.more)
    }

    @Test(arguments: [false, true])
    func noBytesWaitForTheReadsBefore(isSecure: Bool) async throws {
        let maySend = try TestSignal()
        let (socket, _) = try await connectedSocket([.wait(for: maySend), .send("a")], isSecure: isSecure)
        let first = Task.immediate { try await socket.read(exactly: 1) }
        let none = Task.immediate { try await socket.read(exactly: 0) }
        try await eventually("the first waits") { socket.readProgress?.total == 1 }
        maySend.fire()
        #expect(try await none.value == Data())
        try await eventually("the progress is published") { socket.readProgress == nil }
        #expect(try await first.value == Data("a"))
    }

    @Test(arguments: [false, true], [false, true])
    func whatIsTooLittleCanStillBeRead(isSecure: Bool, isHalfClosed: Bool) async throws {
        let mayEnd = try TestSignal()
        let (socket, _) = try await connectedSocket(
            [.wait(for: mayEnd), .send("abc")] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        if isHalfClosed { socket.closeWriteStream() }
        let read = Task.immediate { try await socket.read(exactly: 10) }
        mayEnd.fire()
        #expect(await read.outcome == .failed(.closedByPeer))
        #expect(await outcome { try await socket.read(until: AsyncSocket.crlf) } == .failed(.closedByPeer))
        #expect(await outcome { try await socket.read(exactly: 4) } == .failed(.closedByPeer))
        #expect(try await socket.read() == Data("abc"))
        #expect(try await socket.read() == nil)
    }

    @Test(arguments: [false, true], [false, true])
    func whatIsTooLittleForOneReadIsForTheNext(isSecure: Bool, isHalfClosed: Bool) async throws {
        let mayEnd = try TestSignal()
        let (socket, _) = try await connectedSocket(
            [.wait(for: mayEnd), .send("abc")] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        if isHalfClosed { socket.closeWriteStream() }
        let first = Task.immediate { try await socket.read(exactly: 10) }
        let second = Task.immediate { try await socket.read(exactly: 2) }
        let third = Task.immediate { try await socket.read() }
        let fourth = Task.immediate { try await socket.read() }
        mayEnd.fire()
        #expect(await first.outcome == .failed(.closedByPeer))
        #expect(try await second.value == Data("ab"))
        #expect(try await third.value == Data("c"))
        #expect(try await fourth.value == nil)
    }

    // MARK: - Up to a delimiter

    @Test(arguments: [false, true])
    func aDelimiterMayComeInPieces(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket(
            [.send("one\r\n\r\ntwo\r\n.\r\nrest", inPiecesOf: 1)], isSecure: isSecure)
        #expect(try await socket.read(until: Data("\r\n\r\n")) == Data("one\r\n\r\n"))
        #expect(try await socket.read(until: Data("\r\n.\r\n")) == Data("two\r\n.\r\n"))
        #expect(try await socket.read(until: Data("t")) == Data("rest"))
    }

    @Test(arguments: [false, true])
    func aDelimitedReadMayHaveItsMaximum(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("abc\nabcd\n")], isSecure: isSecure)
        #expect(try await socket.read(until: AsyncSocket.lf, maxLength: 4) == Data("abc\n"))
        #expect(await outcome { try await socket.read(until: AsyncSocket.lf, maxLength: 4) } == .failed(.readMaxedOut))
        #expect(!socket.isConnected)
        #expect(await outcome { try await socket.read() } == .failed(.readMaxedOut))
        #expect(await outcome { try await socket.write("x") } == .failed(.readMaxedOut))
    }

    // MARK: - Up to the end

    @Test(arguments: [false, true], [0, 1, 1 << 20])
    func everythingUpToTheEnd(isSecure: Bool, count: Int) async throws {
        let data = pattern(count)
        let (socket, _) = try await connectedSocket(
            [.send(Array(data))] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        #expect(try await socket.readToEnd() == data)
        #expect(try await socket.readToEnd() == Data())
        #expect(try await socket.read() == nil)
    }

    @Test(arguments: [false, true])
    func theEndMayHaveComeBefore(isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket([.send("abc")] + .orderlyEnd(isSecure: isSecure), isSecure: isSecure)
        _ = try await peer.finish()
        #expect(try await socket.read(exactly: 1) == Data("a"))
        #expect(try await socket.readToEnd(maxLength: 2) == Data("bc"))
    }

    @Test(arguments: [false, true])
    func tooMuchUpToTheEndEndsTheConnection(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("abcd")], isSecure: isSecure)
        #expect(await outcome { try await socket.readToEnd(maxLength: 3) } == .failed(.readMaxedOut))
        #expect(!socket.isConnected)
    }

    /// Without a close_notify, an attacker may have cut off the rest.
    @Test func anEndThatCouldBeAnAttackIsNoEnd() async throws {
        let (socket, _) = try await connectedSocket([.send("abc"), .finish], isSecure: true)
        #expect(await outcome { try await socket.readToEnd() } == .failed(.truncated))
        // The data is not lost, so callers that can handle the truncation can read it.
        #expect(try await socket.read() == Data("abc"))
        #expect(await outcome { try await socket.read() } == .failed(.truncated))
    }

    @Test(arguments: [false, true])
    func aResetIsNoEnd(isSecure: Bool) async throws {
        let mayEnd = try TestSignal()
        let (socket, _) = try await connectedSocket([.send("abc"), .wait(for: mayEnd), .reset], isSecure: isSecure)
        let read = Task.immediate { try await socket.readToEnd() }
        try await eventually("three bytes are there") { socket.readProgress?.bytesDone == 3 }
        mayEnd.fire()
        #expect(await read.outcome == .failed(.connectionReset))
        #expect(try await socket.read() == Data("abc"))
        #expect(await outcome { try await socket.read() } == .failed(.connectionReset))
    }

    // MARK: - The caller's mistakes

    @Test(arguments: [false, true])
    func aMistakeOfTheCallerChangesNothing(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("abc")], isSecure: isSecure)
        #expect(await outcome { try await socket.read(maxLength: 0) } == .failed(.badParameter))
        #expect(await outcome { try await socket.read(maxLength: .min) } == .failed(.badParameter))
        #expect(await outcome { try await socket.read(exactly: -1) } == .failed(.badParameter))
        #expect(await outcome { try await socket.read(until: Data()) } == .failed(.badParameter))
        #expect(await outcome { try await socket.read(until: AsyncSocket.crlf, maxLength: 1) } == .failed(.badParameter))
        #expect(await outcome { try await socket.readLine(maxLength: 0) } == .failed(.badParameter))
        #expect(await outcome { try await socket.readToEnd(maxLength: -1) } == .failed(.badParameter))
        #expect(try await socket.read(exactly: 3) == Data("abc"))
    }

    @Test func aSocketThatIsNotInUseReadsAndWritesNothing() async throws {
        let socket = AsyncSocket()
        #expect(await outcome { try await socket.read() } == .failed(.badConfiguration))
        #expect(await outcome { try await socket.readLine() } == .failed(.badConfiguration))
        #expect(await outcome { try await socket.readToEnd() } == .failed(.badConfiguration))
        #expect(await outcome { try await socket.write("hello") } == .failed(.badConfiguration))
        #expect(await outcome { try await socket.startTLS(settings: TestCertificates.client()) } == .failed(.badConfiguration))
        for try await _ in socket.chunks.prefix(0) {}
        #expect(await outcome { for try await _ in socket.lines {} } == .failed(.badConfiguration))
        try await socket.close()
    }

    @Test(arguments: [false, true])
    func afterTheEndEveryReadFails(isSecure: Bool) async throws {
        let (socket, _) = try await connectedSocket([.send("abc"), .expectEnd], isSecure: isSecure)
        #expect(try await socket.read(exactly: 1) == Data("a"))
        try await socket.close()
        #expect(await outcome { try await socket.read() } == .failed(.closed))
        #expect(await outcome { try await socket.readLine() } == .failed(.closed))
        #expect(await outcome { try await socket.readToEnd() } == .failed(.closed))
        #expect(await outcome { for try await _ in socket.chunks {} } == .failed(.closed))
    }
}
