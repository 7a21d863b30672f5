import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketCore
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Channels with TLS at both ends of a wire that carries data only on request.
@Suite(.ownThreads) struct ByteChannelTLSTests {
    // MARK: - Data

    @Test(arguments: TLSProtocolVersion.tested, [1, .max])
    func bytesPassInBothDirections(_ version: TLSProtocolVersion, chunk: Int) throws {
        let wire = try ChannelWire.secure(version, chunk: chunk)
        for (sender, receiver) in [(wire.client, wire.server), (wire.server, wire.client)] {
            sender.write(Data("hello, "))
            sender.write(Data("channel"))
            #expect(sender.submit().isAll)
            #expect(!sender.channel.hasUnsentBytes && sender.writes.waitingByteCount == 0)
            #expect(try wire.receive(at: receiver) == Array("hello, channel".utf8))
            #expect(!receiver.channel.hasNews && !receiver.channel.mayHaveBytes)
        }
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aReadIsNoLongerThanItsLimitThoughMoreIsDecrypted(_ version: TLSProtocolVersion) throws {
        let wire = try ChannelWire.secure(version)
        wire.server.write(Data("hello"))
        #expect(wire.server.submit().isAll)
        #expect(try wire.carry())
        #expect(wire.client.fill(limit: 3).isBytes)
        #expect(wire.client.takeText() == "hel")
        #expect(wire.client.channel.mayHaveBytes)
        #expect(wire.client.fill(limit: 3).isBytes)
        #expect(wire.client.takeText() == "lo")
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func whatAFullKernelDoesNotTakeWaitsEncrypted(_ version: TLSProtocolVersion) throws {
        let wire = try ChannelWire.secure(version)
        let sent = pattern(3_000_001)
        wire.server.write(sent)
        #expect(wire.server.submitAll().isBlocked)
        #expect(wire.server.channel.hasUnsentBytes && wire.server.writes.waitingByteCount > 0)
        // The kernel is full, so our close_notify and FIN must wait.
        #expect(!wire.server.channel.finishWriting())
        wire.client.takeAll(try Data(wire.receive(at: wire.client)), isPrefixOf: sent)
        #expect(wire.server.submit().isBlocked)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aLargeWriteArrivesWholeAndThenTheEnd(_ version: TLSProtocolVersion) throws {
        let wire = try ChannelWire.secure(version)
        let sent = pattern(1_000_001)
        wire.server.write(sent)
        var received: [UInt8] = []
        var isBlocked = false
        while wire.server.writes.waitingByteCount > 0 || wire.server.channel.hasUnsentBytes {
            if wire.server.submitAll().isBlocked { isBlocked = true }
            received += try wire.receive(at: wire.client)
            wire.server.channel.note(.writable)
        }
        #expect(isBlocked)
        #expect(Data(received) == sent)
        #expect(wire.server.channel.finishWriting())
        #expect(try wire.receive(at: wire.client).isEmpty)
        #expect(wire.client.told.hasOrderlyEnd)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aFileThatShrinksIsABrokenFile(_ version: TLSProtocolVersion) throws {
        let wire = try ChannelWire.secure(version)
        let folder = try TemporaryFolder()
        try pattern(100_000).write(to: folder.url("file"))
        let region = try FileRegion(path: folder.path("file"), offset: 0, length: nil)
        wire.server.writes.append(WritePacket(file: region, timeout: -1, tag: 1))
        #expect(truncate(folder.path("file"), 1000) == 0)
        #expect(wire.server.submitAll().isBlocked)
        #expect(wire.server.told.writeFailure?.isFileBroken == true)
        #expect(wire.server.told.writeFailure?.error.errno == ENODATA)
    }

    // MARK: - Ends

    @Test(arguments: TLSProtocolVersion.tested, [1, .max])
    func aFinWithoutACloseNotifyIsATruncation(_ version: TLSProtocolVersion, chunk: Int) throws {
        let wire = try ChannelWire.secure(version, chunk: chunk)
        wire.server.write(Data("half a sen"))
        #expect(wire.server.submit().isAll)
        #expect(try wire.receive(at: wire.client) == Array("half a sen".utf8))
        wire.cutDown()
        #expect(wire.client.fill().isNothing)
        #expect(wire.client.told.readError?.code == .truncated)
        #expect(wire.client.channel.failure?.code == .truncated)
    }

    /// After each byte of the record.
    @Test(arguments: TLSProtocolVersion.tested)
    func aFinInTheMiddleOfARecordIsATruncation(_ version: TLSProtocolVersion) throws {
        for count in 1..<20 {
            let wire = try ChannelWire.secure(version, chunk: 1)
            _ = try wire.receive(at: wire.client)
            wire.server.write(Data("never whole"))
            #expect(wire.server.submit().isAll)
            for _ in 0..<count { #expect(try wire.carry()) }
            wire.cutDown()
            #expect(wire.client.fillAll().isEmpty)
            #expect(wire.client.told.readError?.code == .truncated, "\(count)")
        }
    }

    @Test(arguments: TLSProtocolVersion.tested, [1, .max])
    func aCloseNotifyEndsOneDirectionOnly(_ version: TLSProtocolVersion, chunk: Int) throws {
        let wire = try ChannelWire.secure(version, chunk: chunk)
        wire.server.write(Data("all"))
        #expect(wire.server.submit().isAll)
        #expect(wire.server.channel.finishWriting())
        #expect(try wire.receive(at: wire.client) == Array("all".utf8))
        #expect(wire.client.channel.hasNews && wire.client.told.hasOrderlyEnd)
        #expect(wire.client.channel.failure?.code == .closedByPeer)
        wire.client.write(Data("answer"))
        #expect(wire.client.submit().isAll)
        #expect(try wire.receive(at: wire.server) == Array("answer".utf8))
        #expect(!wire.server.channel.hasNews)
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func aWriteAfterOurOwnEndFails(_ version: TLSProtocolVersion) throws {
        let wire = try ChannelWire.secure(version)
        #expect(wire.client.channel.finishWriting())
        wire.client.write(Data("late"))
        #expect(wire.client.submit().isBlocked)
        #expect(wire.client.told.writeFailure?.error.code == .tls)
    }

    // MARK: - Closing

    /// Two channels with a TCP connection between them.
    private func connected(_ version: TLSProtocolVersion) throws -> (ours: ChannelEnd, peers: ChannelEnd) {
        let (ours, other) = try ChannelEnd.tcp()
        let peers = ChannelEnd(other, of: .ipv4)
        try peers.beginTLS(TestCertificates.client().only(version))
        try ours.beginTLS(TestCertificates.server().only(version))
        var isComplete = false
        while !isComplete {
            ours.channel.expectBytes()
            peers.channel.expectBytes()
            let answers = [ours.handshake(), peers.handshake()]
            isComplete = answers.allSatisfy(\.isComplete)
        }
        return (ours, peers)
    }

    @Test(arguments: [StreamEnding.Parting.atOnce, .lingering, .reset], TLSProtocolVersion.tested)
    func thePeerSeesHowAChannelIsClosed(_ parting: StreamEnding.Parting, _ version: TLSProtocolVersion) throws {
        let loop = try SocketEventLoop()
        let (ours, peers) = try connected(version)
        if parting != .atOnce {
            peers.write(Data("unread"))
            #expect(peers.submit().isAll)
            try ours.wait(for: Int16(POLLIN))
        }
        ours.write(Data("last words"))
        #expect(ours.submit().isAll)
        ours.channel.close(parting, on: loop)
        let received = try peers.receiveAll()
        if parting == .reset {
            #expect(peers.told.readError?.code == .connectionReset)
        } else {
            #expect(received == Array("last words".utf8))
            #expect(peers.told.hasOrderlyEnd)
        }
    }

    @Test(arguments: TLSProtocolVersion.tested)
    func whatIsEncryptedStillLeavesAfterTheClose(_ version: TLSProtocolVersion) throws {
        let loop = try SocketEventLoop()
        let (ours, peers) = try connected(version)
        let sent = pattern(16 << 20)
        ours.write(sent)
        while ours.submitAll().isMore {}
        #expect(ours.channel.hasUnsentBytes)
        let encrypted = sent.count - ours.writes.waitingByteCount
        ours.channel.close(.atOnce, on: loop)
        #expect(try Data(peers.receiveAll()) == sent[..<encrypted])
        #expect(peers.told.hasOrderlyEnd)
    }

    /// Data that was encrypted but not sent is lost with a failed send, so its writes are not complete.
    @Test(arguments: TLSProtocolVersion.tested)
    func whatAFailedSendHasLostStaysUnsent(_ version: TLSProtocolVersion) throws {
        let (ours, peers) = try connected(version)
        repeat { ours.write(pattern(4096)) } while ours.submit().isAll
        #expect(ours.channel.hasUnsentBytes && ours.writes.waitingByteCount == 0)
        peers.channel.close(.reset, on: try SocketEventLoop())
        try ours.wait(for: Int16(POLLHUP))
        ours.channel.note([.readable, .writable, .readHangup, .hangup])
        #expect(!ours.submit().isMore)
        #expect(ours.told.writeFailure?.error.code == .connectionReset)
        #expect(ours.channel.hasUnsentBytes)
    }
}

extension ChannelEnd {
    /// Checks what was received so far.
    fileprivate func takeAll(_ received: Data, isPrefixOf sent: Data) {
        #expect(!received.isEmpty && received == sent[..<received.count])
    }
}
