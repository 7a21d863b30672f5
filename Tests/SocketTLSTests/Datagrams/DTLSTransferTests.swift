import AsyncSocketsTesting
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketTLS

/// DTLS messages in memory, over reliable and unreliable wires.
@Suite(.ownThreads) struct DTLSTransferTests {
    private func established(_ change: (inout Fixture) throws -> Void = { _ in }, size: Int = 1400) throws -> DatagramPair {
        var fixture = try Fixture.forDatagrams()
        try change(&fixture)
        let pair = try DatagramPair(fixture, size: size)
        pair.shakeHands()
        try #require(pair.client.isComplete && pair.server.isComplete)
        return pair
    }

    @Test func messagesKeepTheirBounds() throws {
        let pair = try established()
        let sent: [[UInt8]] = [[1], Array("hello".utf8), Array(repeating: 9, count: 1200)]
        for message in sent {
            pair.send(message, from: .client)
            pair.send(message, from: .server)
        }
        #expect(pair.server.messages == sent && pair.client.messages == sent)
    }

    @Test func theLargestMessageFitsItsDatagram() throws {
        for size in [300, 1400, 9000, 65_507] {
            let pair = try established(size: size)
            let count = pair.client.engine.maximumMessageSize
            #expect(count == min(size - 37, 16_384))
            pair.send(Array(repeating: 3, count: count), from: .client)
            #expect(pair.client.sent.last.map { $0.count <= size } == true && pair.server.messages.last?.count == count)
        }
    }

    @Test func aRepeatedDatagramIsDeliveredOnce() throws {
        let pair = try established()
        for number in 0..<10 { pair.send([UInt8(number)], from: .client) }
        for datagram in pair.client.sent { pair.server.receive(datagram) }
        pair.server.readAll()
        #expect(pair.server.messages == (0..<10).map { [UInt8($0)] })
        #expect(pair.server.engine.droppedRecordCount >= 10)
    }

    @Test func aDatagramThatComesLateIsDeliveredAndAVeryLateOneIsNot() throws {
        let pair = try established()
        // Handshake messages may have arrived twice.
        let before = pair.server.engine.droppedRecordCount
        var sealed: [[UInt8]] = []
        for number in 0..<100 {
            _ = pair.client.write([UInt8(number)])
            pair.client.engine.sendOutput { datagrams in
                sealed += datagrams.map { Array($0) }
                return datagrams.count
            }
        }
        for index in [99, 60, 0, 99] { pair.server.receive(sealed[index]) }
        pair.server.readAll()
        // The window has 64 records (RFC 6347, section 4.1.2.6).
        #expect(pair.server.messages == [[99], [60]] && pair.server.engine.droppedRecordCount == before + 2)
    }

    @Test func corruptedDatagramsAreDroppedAndCounted() throws {
        let pair = try established()
        let before = pair.server.engine.droppedRecordCount
        pair.corrupt()
        for _ in 0..<50 { pair.send(Array("wrong".utf8), from: .client) }
        #expect(pair.server.messages.isEmpty && pair.server.end == nil)
        #expect(pair.server.engine.droppedRecordCount == before + 50)
        pair.heal()
        pair.send(Array("right".utf8), from: .client)
        #expect(pair.server.messages == [Array("right".utf8)])
    }

    /// Datagrams that anyone can send with a forged address do not close a connection or fail a handshake.
    @Test func foreignDatagramsChangeNothing() throws {
        let foreign: [[UInt8]] = [
            [], [0], Array("GET / HTTP/1.0\r\n\r\n".utf8), Array(repeating: 0xFF, count: 1500),
            [23, 0xFE, 0xFD] + [UInt8](repeating: 0, count: 8) + [0, 1, 0x41],
            [24, 0xFE, 0xFD] + [UInt8](repeating: 0, count: 8) + [0, 3, 1, 0, 0], [22, 3, 3, 0, 4, 1, 0, 0, 0],
            [21, 0xFE, 0xFD, 0, 9] + [UInt8](repeating: 0, count: 6) + [0, 2, 2, 40],
        ]
        let fixture = try Fixture.forDatagrams()
        let pair = try DatagramPair(fixture)
        for _ in 0..<8 {
            for datagram in foreign { for end in [pair.client, pair.server] { end.receive(datagram) } }
            pair.client.shakeHands()
            pair.server.shakeHands()
            pair.carry()
        }
        pair.shakeHands()
        #expect(pair.client.isComplete && pair.server.isComplete)
        for datagram in foreign + [[21, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 99, 0, 2, 2, 40]] { pair.client.receive(datagram) }
        pair.client.readAll()
        pair.send([1], from: .server)
        #expect(pair.client.messages == [[1]] && pair.client.end == nil && pair.client.engine.droppedRecordCount > 0)
    }

    @Test func closeNotifyEndsTheOtherSide() throws {
        let pair = try established()
        pair.client.engine.shutdown()
        pair.carry()
        pair.server.readAll()
        guard case .closed = pair.server.end else {
            Issue.record("the end did not come")
            return
        }
        guard case .failed = pair.client.write([1]) else {
            Issue.record("something was written behind close_notify")
            return
        }
    }

    /// Otherwise an idle connection would keep it, with an entry for each handshake message.
    @Test func theStateOfFragmentsIsFreedAfterTheHandshake() throws {
        let pair = try DatagramPair(.forDatagrams())
        #expect(pair.client.engine.records.fragments != nil && pair.server.engine.records.fragments != nil)
        pair.shakeHands()
        try #require(pair.client.isComplete && pair.server.isComplete)
        #expect(pair.client.engine.records.fragments == nil && pair.server.engine.records.fragments == nil)
    }

    @Test func buffersComeBackWhenTheyAreNeeded() throws {
        let pair = try established()
        for number in 0..<4 {
            pair.client.engine.releaseBuffers()
            pair.server.engine.releaseBuffers()
            pair.send([UInt8(number)], from: number % 2 == 0 ? .client : .server)
        }
        #expect(pair.server.messages == [[0], [2]] && pair.client.messages == [[1], [3]])
        pair.client.engine.releaseBuffers()
        pair.client.engine.shutdown()
        pair.carry()
        pair.server.engine.releaseBuffers()
        pair.server.readAll()
        #expect(pair.server.end != nil)
    }

    /// Every handshake completes over wires that lose, duplicate and reorder datagrams. If they also corrupt
    /// datagrams, a handshake may fail, because its messages are not authenticated before its end. Then both
    /// sides report an error.
    @Test(arguments: [1, 10, 30], [false, true])
    func handshakesOnBadWiresCompleteOrFailCleanly(_ part: Int, _ corrupts: Bool) throws {
        var fixture = try Fixture.forDatagrams()
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        var completed = 0
        // If all may fail, one attempt is enough. Otherwise a busy machine may need more time.
        let times: [Double] = !corrupts ? [60] : part == 30 ? [1] : [1, 5, 30]
        for (time, seed) in times.flatMap({ time in (0..<10 as Range<UInt64>).map { (time, $0) } }) {
            guard completed == 0 || time == times[0] else { break }
            var harm = DatagramPair.Harm.all(part)
            if !corrupts { harm.corruption = 0 }
            let pair = try DatagramPair(fixture, size: 512, harm: harm, seed: seed)
            pair.shakeHands(within: .seconds(time))
            let isDone = pair.client.isComplete && pair.server.isComplete
            #expect(isDone || corrupts, "seed \(seed): \(pair.client.answer), \(pair.server.answer)")
            guard isDone else {
                #expect(pair.client.error != nil || pair.server.error != nil)
                continue
            }
            completed += 1
            for number in 0..<50 {
                pair.send([UInt8(number), 1], from: .client)
                pair.send([UInt8(number), 2], from: .server)
            }
            #expect(pair.server.messages.allSatisfy { $0.count == 2 && $0[0] < 50 && $0[1] == 1 })
            #expect(pair.client.messages.allSatisfy { $0.count == 2 && $0[0] < 50 && $0[1] == 2 })
            #expect(Set(pair.server.messages).count == pair.server.messages.count)
        }
        // With so much corruption, all of them may fail.
        #expect(completed > 0 || (corrupts && part == 30))
    }
}
