import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// A plaintext channel on a real socket, without a turn or an event loop. The tests report events in place of
/// the loop.
@Suite struct ByteChannelTests {
    // MARK: - Filling

    @Test func aShortReadOnTCPHasEmptiedTheKernel() throws {
        let (end, peer) = try ChannelEnd.tcp()
        #expect(end.channel.mayReceive && end.channel.mayHaveBytes)
        try peer.send("hello")
        try end.wait(for: Int16(POLLIN))
        #expect(end.fill().isBytes)
        #expect(end.takeText() == "hello")
        #expect(!end.channel.mayReceive && !end.channel.mayHaveBytes)
        try peer.send("more")
        try end.wait(for: Int16(POLLIN))
        #expect(end.fill().isNothing)
        end.channel.note(.readable)
        #expect(end.fill().isBytes)
        #expect(end.takeText() == "more")
    }

    @Test func aShortReadOnAUnixSocketSaysNothing() throws {
        let (end, peer) = try ChannelEnd.pair()
        try peer.send("hello")
        #expect(end.fill().isBytes)
        try peer.send("more")
        #expect(end.channel.mayReceive)
        #expect(end.fill().isBytes)
        #expect(end.takeText() == "hellomore")
        #expect(end.fill().isNothing)
        #expect(!end.channel.mayReceive)
    }

    @Test func anEmptyKernelIsAskedAgainAfterAnEventOnly() throws {
        let (end, peer) = try ChannelEnd.pair()
        #expect(end.fill().isNothing)
        try peer.send("x")
        #expect(end.fill().isNothing)
        end.channel.note(.writable)
        #expect(end.fill().isNothing)
        end.channel.expectBytes()
        #expect(end.fill().isBytes)
        #expect(!end.channel.hasNews && end.channel.failure == nil)
    }

    @Test func aReadIsNoLongerThanItsLimit() throws {
        let (end, peer) = try ChannelEnd.tcp()
        try peer.send("hello")
        try end.wait(for: Int16(POLLIN))
        #expect(end.fill(limit: 3).isBytes)
        #expect(end.takeText() == "hel")
        // The read filled the buffer, so the kernel may have more data.
        #expect(end.channel.mayReceive)
        #expect(end.fill(limit: 3).isBytes)
        #expect(end.takeText() == "lo")
        #expect(!end.channel.mayReceive)
    }

    @Test func whatComesBehindUrgentDataNeedsNoEvent() throws {
        let (end, peer) = try ChannelEnd.tcp()
        try peer.send("abc")
        #expect(send(peer.descriptor, "!", 1, CInt(MSG_OOB)) == 1)
        try peer.send("def")
        try end.wait(for: Int16(POLLPRI))
        end.channel.note([.readable, .urgent])
        #expect(end.fill().isBytes)
        #expect(end.takeText() == "abc")
        try end.wait(for: Int16(POLLIN))
        #expect(end.fill().isBytes)
        #expect(end.takeText() == "def")
    }

    @Test func aFinBehindBytesNeedsNoSecondEvent() throws {
        let (end, peer) = try ChannelEnd.tcp()
        try peer.send("bye")
        peer.finish()
        try end.wait(for: ChannelEnd.readHangup)
        end.channel.note([.readable, .readHangup])
        #expect(end.fill().isBytes)
        #expect(end.takeText() == "bye")
        #expect(!end.channel.hasNews)
        #expect(end.fill().isNothing)
        #expect(end.channel.hasNews && end.told.hasOrderlyEnd)
        #expect(end.channel.failure?.code == .closedByPeer)
        // The end is final, whatever events the loop reports.
        end.channel.note(.readable)
        #expect(!end.channel.mayReceive && end.told.hasOrderlyEnd)
        #expect(end.told.writeFailure == nil)
    }

    // MARK: - Failing

    @Test func aResetIsNoOrderlyEnd() throws {
        let (end, peer) = try ChannelEnd.tcp()
        peer.resetWhenClosed()
        _ = consume peer
        try end.wait(for: Int16(POLLIN))
        #expect(end.fill().isNothing)
        #expect(end.told.readError?.errno == ECONNRESET && end.told.readError?.operation == .read)
        #expect(end.channel.failure?.code == .connectionReset)
    }

    /// The kernel reports a reset only once, which was to the write.
    @Test func aResetThatAWriteHasMetIsNoOrderlyEnd() throws {
        let end = try ChannelEnd.reset(behind: "last words")
        end.write(Data("hello"))
        #expect(end.submit().isBlocked)
        #expect(end.told.writeFailure?.error.errno == ECONNRESET)
        #expect(end.told.writeFailure?.isFileBroken == false && end.told.readEnd == nil)
        // Data received before it can still be read.
        #expect(end.fill().isBytes)
        #expect(end.takeText() == "last words")
        #expect(end.fill().isNothing)
        #expect(end.told.readError?.code == .connectionReset)
        #expect(end.submit().isBlocked)
    }

    @Test func aBrokenPipeDoesNotHideAFin() throws {
        let (end, peer) = try ChannelEnd.pair()
        #expect(end.channel.finishWriting())
        end.write(Data("late"))
        #expect(end.submit().isBlocked)
        #expect(end.channel.failure?.errno == EPIPE)
        peer.finish()
        #expect(end.fill().isNothing)
        #expect(end.told.hasOrderlyEnd && end.told.writeFailure?.error.errno == EPIPE)
    }

    @Test func theErrorOfAHangupIsTakenOnce() throws {
        let (end, peer) = try ChannelEnd.tcp()
        peer.resetWhenClosed()
        _ = consume peer
        try end.wait(for: Int16(POLLHUP))
        #expect(!end.channel.hasNews)
        end.channel.note(.hangup)
        #expect(end.channel.hasNews && end.told.mayDecide)
        #expect(end.channel.takeError()?.errno == ECONNRESET)
        #expect(end.channel.takeError() == nil)
    }

    // MARK: - Submitting

    @Test func smallWritesLeaveTogether() throws {
        let (end, peer) = try ChannelEnd.pair()
        #expect(end.submit().isAll)
        for text in ["one ", "two ", "three"] { end.write(Data(text)) }
        #expect(end.submit().isAll)
        #expect(try peer.receiveText() == "one two three")
        for _ in 0..<3 { #expect(end.writes.removeHandedOn() != nil) }
        #expect(end.writes.isEmpty && !end.channel.hasUnsentBytes)
    }

    /// Appends the data that the peer has received so far, without waiting for more.
    private func drain(_ peer: RawSocket, into received: inout Data) throws {
        while peer.hasInput { received += try peer.receive() }
    }

    @Test func aFullKernelBlocksUntilAnEventSaysThatItIsNot() throws {
        let (end, peer) = try ChannelEnd.pair()
        let sent = pattern(3_000_001)
        end.write(sent)
        #expect(end.submit().isMore)
        #expect(end.submitAll().isBlocked)
        let waiting = end.writes.waitingByteCount
        #expect(waiting > 0 && waiting < sent.count)
        var received = Data()
        try drain(peer, into: &received)
        #expect(received.count == sent.count - waiting)
        // There is room, but the loop has not reported it.
        #expect(end.submit().isBlocked)
        #expect(end.writes.waitingByteCount == waiting)
        end.channel.note(.readable)
        #expect(end.submit().isBlocked)
        repeat {
            end.channel.note(.writable)
            _ = end.submitAll()
            try drain(peer, into: &received)
        } while received.count < sent.count
        #expect(received == sent)
        #expect(end.submit().isAll)
    }

    @Test func bytesInNoQueueAreSentWhileThereIsRoom() throws {
        let (end, peer) = try ChannelEnd.pair()
        #expect(Data("abc").withUnsafeBytes { end.channel.send($0) } == 3)
        #expect(try peer.receiveText() == "abc")
        end.write(pattern(3_000_000))
        #expect(end.submitAll().isBlocked)
        #expect(Data("abc").withUnsafeBytes { end.channel.send($0) } == 0)
        #expect(end.channel.retry == nil)
    }

    // MARK: - Files

    @Test func aFileLeavesInPartsBetweenOtherWrites() throws {
        let (end, peer) = try ChannelEnd.pair()
        let contents = pattern(150_000)
        let folder = try TemporaryFolder()
        try contents.write(to: folder.url("file"))
        end.write(Data("before"))
        try end.writes.append(file(folder, offset: 1000))
        end.write(Data("behind"))
        let expected = Data("before") + contents[1000...] + Data("behind")
        var received = Data()
        var rounds = 0
        while end.submit().isMore {
            rounds += 1
            try drain(peer, into: &received)
        }
        try drain(peer, into: &received)
        #expect(received == expected)
        #expect(rounds >= 4)
    }

    @Test func aFileThatShrinksIsABrokenFile() throws {
        let (end, peer) = try ChannelEnd.pair()
        let folder = try TemporaryFolder()
        try pattern(100_000).write(to: folder.url("file"))
        try end.writes.append(file(folder))
        #expect(truncate(folder.path("file"), 1000) == 0)
        #expect(end.submit().isMore)
        #expect(end.submit().isBlocked)
        #expect(end.told.writeFailure?.isFileBroken == true)
        #expect(end.told.writeFailure?.error.errno == ENODATA && end.told.readEnd == nil)
        var received = Data()
        try drain(peer, into: &received)
        #expect(received == pattern(100_000)[..<1000])
    }

    private func file(_ folder: TemporaryFolder, offset: Int = 0) throws -> WritePacket {
        let region = try FileRegion(path: folder.path("file"), offset: offset, length: nil)
        return WritePacket(file: region, timeout: -1, tag: 1)
    }

    // MARK: - Closing

    /// Closing a channel with and without unread bytes.
    @Test(arguments: [StreamEnding.Parting.atOnce, .lingering, .reset], [false, true])
    func thePeerSeesHowAChannelIsClosed(_ parting: StreamEnding.Parting, hasUnread: Bool) throws {
        let loop = try SocketEventLoop()
        let (end, peer) = try ChannelEnd.tcp()
        if hasUnread {
            try peer.send("unread")
            try end.wait(for: Int16(POLLIN))
        }
        #expect(Data("last words").withUnsafeBytes { end.channel.send($0) } == 10)
        end.channel.close(parting, on: loop)
        guard parting == .reset || (parting == .atOnce && hasUnread) else {
            #expect(try peer.receiveAll() == "last words")
            return
        }
        // A reset may overtake data sent before it.
        let error = #expect(throws: LoopbackError.self) { try peer.receiveAll() }
        #expect(error?.code == .reset)
    }

    @Test func afterOurFinThePeerCanStillWrite() throws {
        let (end, peer) = try ChannelEnd.tcp()
        end.write(Data("all"))
        #expect(end.submit().isAll)
        #expect(end.channel.finishWriting())
        #expect(try peer.receiveAll() == "all")
        try peer.send("answer")
        try end.wait(for: Int16(POLLIN))
        #expect(end.fill().isBytes)
        #expect(end.takeText() == "answer")
        #expect(!end.channel.hasNews)
    }
}
