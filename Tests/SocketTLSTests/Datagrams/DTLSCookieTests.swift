import AsyncSocketsTesting
import SocketTestSupport
import Testing

@testable import SocketTLS

/// The stateless exchange before a server's handshake.
struct DTLSCookieTests {
    private let address: [UInt8] = [127, 0, 0, 1, 0x12, 0x34]

    private func hello(of client: DatagramPair.End) throws -> [UInt8] {
        client.shakeHands()
        var sent: [[UInt8]] = []
        client.engine.sendOutput { datagrams in
            sent = datagrams.map { Array($0) }
            return datagrams.count
        }
        return try #require(sent.last)
    }

    private func request(_ answer: DTLSCookies.Answer) throws -> [UInt8] {
        guard case .request(let bytes) = answer else { throw TestFailure(what: "no request, but \(answer)") }
        return bytes
    }

    private func judge(_ cookies: DTLSCookies, _ datagram: [UInt8], from address: [UInt8]) -> DTLSCookies.Answer {
        datagram.withUnsafeBytes { cookies.judge($0, from: address) }
    }

    @Test func aClientThatSendsItsCookieBackIsAdmittedAndShakesHands() throws {
        let fixture = try Fixture.forDatagrams()
        let cookies = try DTLSCookies()
        let pair = try DatagramPair(fixture)
        let first = try hello(of: pair.client)
        let asked = try request(judge(cookies, first, from: address))
        #expect(asked.count <= first.count)
        pair.client.receive(asked)
        let second = try hello(of: pair.client)
        guard case .admission = judge(cookies, second, from: address) else {
            Issue.record("the cookie was refused")
            return
        }
        #expect(second.withUnsafeBytes { pair.server.engine.listen($0) })
        pair.shakeHands()
        #expect(pair.client.isComplete && pair.server.isComplete)
        pair.send([1, 2], from: .client)
        #expect(pair.server.messages == [[1, 2]])
    }

    @Test func aCookieIsOfUseToItsAddressAloneAndForItsMessage() throws {
        let fixture = try Fixture.forDatagrams()
        let cookies = try DTLSCookies()
        let client = DatagramPair.End(try fixture.datagramEngine(.client), firstTimeout: 60)
        client.receive(try request(judge(cookies, try hello(of: client), from: address)))
        let second = try hello(of: client)
        _ = try request(judge(cookies, second, from: address.reversed()))
        _ = try request(judge(try DTLSCookies(), second, from: address))
        var changed = second
        changed[RecordHeader.size + 12 + 2] ^= 1
        _ = try request(judge(cookies, changed, from: address))
    }

    @Test func aSecretCountsForTwoLifetimes() throws {
        let fixture = try Fixture.forDatagrams()
        let clock = TestClock()
        let cookies = try DTLSCookies(clock: { clock.now })
        let client = DatagramPair.End(try fixture.datagramEngine(.client), firstTimeout: 60)
        client.receive(try request(judge(cookies, try hello(of: client), from: address)))
        let second = try hello(of: client)
        clock.advance(milliseconds: DTLSCookies.lifetime / 1_000_000 + 1)
        guard case .admission = judge(cookies, second, from: address) else {
            Issue.record("the cookie of the earlier secret was refused")
            return
        }
        clock.advance(milliseconds: DTLSCookies.lifetime / 1_000_000 + 1)
        // The client gets another request, and answers it too.
        client.receive(try request(judge(cookies, second, from: address)))
        let third = try hello(of: client)
        guard case .admission = judge(cookies, third, from: address) else {
            Issue.record("the new cookie was refused")
            return
        }
    }

    @Test func anythingElseGetsNoAnswer() throws {
        let fixture = try Fixture.forDatagrams()
        let cookies = try DTLSCookies()
        let whole = try hello(of: DatagramPair.End(try fixture.datagramEngine(.client), firstTimeout: 60))
        var generator = SeededGenerator(seed: 22)
        for length in 0..<whole.count {
            guard case .none = judge(cookies, Array(whole.prefix(length)), from: address) else {
                Issue.record("the first \(length) bytes got an answer")
                return
            }
        }
        for _ in 0..<10_000 {
            var changed = whole
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                changed[Int.random(in: 0..<80, using: &generator)] = UInt8.random(in: 0...255, using: &generator)
            }
            // It must not crash, nor admit, nor answer with more than it got.
            switch judge(cookies, changed, from: address) {
            case .none: break
            case .request(let bytes): #expect(bytes.count <= changed.count)
            case .admission: Issue.record("a forged cookie was right")
            }
        }
    }
}
