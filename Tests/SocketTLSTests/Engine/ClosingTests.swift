import AsyncSocketsTesting
import SocketBuffers
import SocketTLS
import Testing

@Suite struct ClosingTests {
    private func connected(_ version: TLSProtocolVersion, chunk: Int = .max) throws -> EnginePair {
        let pair = try Fixture(version).pair(chunk: chunk)
        pair.shakeHands()
        try #require(pair.isComplete)
        return pair
    }

    @Test(arguments: versions)
    func closeNotifyEndsReadingInOrder(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        _ = pair.client.write("bye")
        pair.client.shutdown()
        pair.carryAll()
        let (text, end) = pair.server.readAll()
        #expect(text == "bye")
        #expect(end.isClosed)
        #expect(pair.server.readAll().end.isClosed)
        pair.server.receiveEndOfFile()
        #expect(pair.server.readAll().end.isClosed)
    }

    @Test(arguments: versions)
    func theOtherHalfStaysOpenAfterCloseNotify(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        pair.client.shutdown()
        pair.carryAll()
        #expect(pair.server.readAll().end.isClosed)
        #expect(pair.server.write("still here").accepted == 10)
        pair.server.shutdown()
        pair.carryAll()
        let (text, end) = pair.client.readAll()
        #expect(text == "still here")
        #expect(end.isClosed)
    }

    @Test(arguments: versions)
    func anEndWithoutCloseNotifyIsATruncation(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        _ = pair.client.write("half a senten")
        pair.carryAll()
        pair.server.receiveEndOfFile()
        let (text, end) = pair.server.readAll()
        #expect(text == "half a senten")
        #expect(end.error?.code == .truncated)
        #expect(end.error?.fault == .peer)
        #expect(pair.server.readAll().end.error?.code == .truncated)
    }

    @Test(arguments: versions)
    func anEndInTheMiddleOfARecordIsATruncation(version: TLSProtocolVersion) throws {
        let pair = try connected(version, chunk: 9)
        _ = pair.client.write("lost")
        pair.carry()
        pair.server.receiveEndOfFile()
        let (text, end) = pair.server.readAll()
        #expect(text.isEmpty)
        #expect(end.error?.code == .truncated)
    }

    @Test(arguments: versions)
    func aPeerThatHasClosedGetsNoAlert(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        pair.server.receiveEndOfFile()
        let error = pair.server.readAll().end.error
        #expect(error?.code == .truncated)
        #expect(error?.sentAlert == nil)
        #expect(pair.server.output.isEmpty)
    }

    @Test(arguments: versions, [true, false])
    func aPeerThatClosesInTheHandshakeGetsNoAlert(version: TLSProtocolVersion, atServer: Bool) throws {
        let pair = try Fixture(version).pair()
        _ = pair.client.handshake()
        if atServer { pair.carry() }
        let victim = atServer ? pair.server : pair.client
        _ = victim.handshake()
        victim.output.consume(victim.output.count)
        victim.receiveEndOfFile()
        let error = victim.handshake().error
        #expect(error?.code == .closedDuringHandshake)
        #expect(error?.sentAlert == nil)
        #expect(victim.output.isEmpty)
    }

    @Test(arguments: versions, [1, 1000, 65_536])
    func allThatWasDecryptedIsHandedOutBeforeATruncation(version: TLSProtocolVersion, limit: Int) throws {
        let pair = try connected(version)
        let sent = [UInt8]((0..<40_000).map { UInt8(truncatingIfNeeded: $0 &* 7) })
        #expect(sent.withUnsafeBytes { pair.client.write($0) }.accepted == sent.count)
        pair.carryAll()
        // Another half of a record, which is lost.
        _ = pair.client.write("lost")
        pair.server.receive(Array(Array(pair.client.output.readableBytes).dropLast(3)))
        pair.server.receiveEndOfFile()
        let buffer = PreBuffer()
        var error: TLSError?
        while error == nil {
            switch pair.server.read(into: buffer, limit: limit) {
            case .bytes(let count): #expect((1...limit).contains(count))
            case .truncated(let failure): error = failure
            case .incomplete, .closed, .failed: throw TestFailure(what: "no end")
            }
        }
        #expect(Array(buffer.readableBytes) == sent)
        #expect(error?.code == .truncated)
    }

    @Test(arguments: versions)
    func dataStillComesAfterOurOwnCloseNotify(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        pair.client.shutdown()
        #expect(pair.client.write("x").error?.code == .internalError)
        pair.carryAll()
        #expect(pair.server.readAll().end.isClosed)
        #expect(pair.server.write("the rest").accepted == 8)
        pair.carryAll()
        #expect(pair.client.readAll().text == "the rest")
        #expect(pair.client.write("x").error?.code == .internalError)
        #expect(pair.client.output.isEmpty)
    }

    @Test(arguments: versions)
    func closeNotifyIsSentOnce(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        pair.client.shutdown()
        let count = pair.client.output.count
        #expect(count > 0)
        pair.client.shutdown()
        #expect(pair.client.output.count == count)
    }

    @Test(arguments: versions)
    func nothingCanBeWrittenAfterCloseNotify(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        pair.client.shutdown()
        #expect(pair.client.write("x").error?.code == .internalError)
    }

    @Test(arguments: versions)
    func shutdownDuringTheHandshakeDoesNothing(version: TLSProtocolVersion) throws {
        let pair = try Fixture(version).pair()
        pair.client.shutdown()
        #expect(pair.client.output.isEmpty)
        _ = pair.client.handshake()
        let hello = pair.client.output.count
        pair.client.shutdown()
        #expect(pair.client.output.count == hello)
        pair.shakeHands()
        #expect(pair.isComplete)
    }

    @Test(arguments: versions)
    func changedBytesEndTheConnectionAndTheAlertArrives(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        _ = pair.client.write("hello")
        var bytes = Array(pair.client.output.readableBytes)
        bytes[bytes.count - 1] ^= 1
        pair.client.output.consume(bytes.count)
        pair.server.receive(bytes)
        let error = pair.server.readAll().end.error
        #expect(error?.code == .protocolViolation)
        #expect(error?.sentAlert == .badRecordMAC)
        pair.carryAll()
        let answer = pair.client.readAll().end.error
        #expect(answer?.code == .peerAlert)
        #expect(answer?.alert == .badRecordMAC)
        #expect(pair.server.write("x").error?.code == .protocolViolation)
        pair.server.shutdown()
        #expect(pair.server.output.isEmpty)
    }

    @Test(arguments: versions)
    func plainBytesInsideTheConnectionAreAViolation(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        pair.server.receive("QUIT\r\nQUIT\r\nQUIT\r\n")
        #expect(pair.server.readAll().end.error?.code == .protocolViolation)
    }
}
