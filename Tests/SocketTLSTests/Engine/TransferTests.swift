import AsyncSocketsTesting
import SocketBuffers
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.ownThreads) struct TransferTests {
    private func connected(_ version: TLSProtocolVersion, chunk: Int = .max) throws -> EnginePair {
        let pair = try Fixture(version).pair(chunk: chunk)
        pair.shakeHands()
        try #require(pair.isComplete)
        return pair
    }

    @Test(arguments: versions, [997, 50_000])
    func megabytesArriveInOrder(version: TLSProtocolVersion, chunk: Int) throws {
        let pair = try connected(version, chunk: chunk)
        let sent = [UInt8](pattern(3_000_000))
        var got: [UInt8] = []
        var offset = 0
        while got.count < sent.count {
            sent.withUnsafeBytes { bytes in
                while let count = pair.client.write(UnsafeRawBufferPointer(rebasing: bytes[offset...])).accepted, count > 0 {
                    offset += count
                }
            }
            #expect(pair.client.output.count < TLSEngine.outputLimit + 66_000)
            pair.carry()
            let (bytes, end) = pair.server.readAllBytes()
            got += bytes
            guard end.isIncomplete else { break }
        }
        #expect(got == sent)
    }

    @Test(arguments: versions)
    func aWriteTakesAtMostFourRecordsAndNothingWhenTheOutputIsFull(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        let bytes = [UInt8](repeating: 7, count: 100_000)
        var total = 0
        while let count = bytes.withUnsafeBytes({ pair.client.write($0) }).accepted {
            #expect(count == TLSEngine.writeLimit)
            total += count
        }
        #expect(pair.client.output.count >= TLSEngine.outputLimit)
        #expect(pair.client.output.count < TLSEngine.outputLimit + 66_000)
        #expect(bytes.withUnsafeBytes { pair.client.write($0) }.isIncomplete)
        pair.carryAll()
        #expect(bytes.withUnsafeBytes { pair.client.write($0) }.accepted == TLSEngine.writeLimit)
        pair.carryAll()
        #expect(pair.server.readAllBytes().bytes.count == total + TLSEngine.writeLimit)
    }

    @Test(arguments: versions)
    func whatOneWriteTakesFitsIntoOneBlock(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        let bytes = [UInt8](repeating: 7, count: TLSEngine.writeLimit)
        #expect(bytes.withUnsafeBytes { pair.client.write($0) }.accepted == TLSEngine.writeLimit)
        #expect(pair.client.output.count <= 4 * TLSEngine.encryptedRecordLimit)
        #expect(4 * TLSEngine.encryptedRecordLimit <= BufferPool.blockSize)
    }

    @Test(arguments: versions)
    func readingGoesOnWhileTheOutputIsFull(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        let bytes = [UInt8](repeating: 7, count: 16_384)
        while bytes.withUnsafeBytes({ pair.client.write($0) }).accepted != nil {}
        _ = pair.server.write("hello")
        pair.client.receive(Array(pair.server.output.readableBytes))
        #expect(pair.client.readAll().text == "hello")
    }

    @Test(arguments: versions)
    func aReadNeverTakesMoreThanItsLimit(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        _ = pair.client.write(String(repeating: "0123456789", count: 1000))
        pair.carryAll()
        let buffer = PreBuffer()
        guard case .bytes(let first) = pair.server.read(into: buffer, limit: 7) else {
            Issue.record("7 bytes should be there")
            return
        }
        #expect(first == 7)
        #expect(buffer.count == 7)
        #expect(pair.server.read(into: buffer, limit: 0).isIncomplete)
        // The rest of the record is inside OpenSSL now: `received` is empty, and the rest must still be
        // delivered.
        #expect(pair.server.received.isEmpty)
        #expect(pair.server.readAll().text.count == 9993)
    }

    @Test(arguments: versions)
    func dataBehindTheHandshakeIsReadableAtOnce(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        let fresh = try Fixture(version).pair()
        // The client's last flight and its first data arrive together.
        for _ in 0..<5 {
            if fresh.client.handshake().isComplete, fresh.client.output.count > 0 || version == .tls12 { break }
            _ = fresh.server.handshake()
            fresh.carry()
        }
        _ = pair
        while !fresh.client.handshake().isComplete {
            _ = fresh.server.handshake()
            fresh.carry()
        }
        _ = fresh.client.write("first words")
        fresh.carryAll()
        #expect(fresh.server.handshake().isComplete)
        #expect(fresh.server.readAll().text == "first words")
    }

    @Test(arguments: versions)
    func anEmptyWriteSendsNothing(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        #expect(pair.client.write("").accepted == 0)
        #expect(pair.client.output.isEmpty)
    }

    @Test(arguments: versions)
    func anIdleConnectionHoldsNoBuffer(version: TLSProtocolVersion) throws {
        let pair = try connected(version)
        let buffer = PreBuffer()
        #expect(pair.server.read(into: buffer, limit: 1000).isIncomplete)
        pair.server.receive([23, 3, 3])
        #expect(pair.server.read(into: buffer, limit: 1000).isIncomplete)
        #expect(buffer.readableBytes.baseAddress == nil)
        #expect(pair.server.received.readableBytes.baseAddress == nil)
    }
}
