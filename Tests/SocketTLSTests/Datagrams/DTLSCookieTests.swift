import AsyncSocketsTesting
import Glibc
import SocketTestSupport
import Testing

@testable import SocketTLS

/// The stateless cookie exchange before a server's handshake.
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

    /// OpenSSL's own cookie requests are not used, because they need state for each client.
    @Test func aHelloThatIsNotTakenGetsNoReply() throws {
        let whole = try hello(of: DatagramPair.End(try Fixture.forDatagrams().datagramEngine(.client), firstTimeout: 60))
        var cut = whole
        cut.removeLast(20)
        for datagram in [whole, cut, [], [1, 2, 3]] {
            let server = DatagramPair.End(try Fixture.forDatagrams().datagramEngine(.server))
            #expect(!datagram.withUnsafeBytes { server.engine.listen($0) })
            #expect(!server.engine.hasOutput && !server.engine.isEstablished)
        }
    }

    /// Lets the client's timer expire, and returns the retransmitted ClientHello.
    private func helloAgain(of client: DatagramPair.End) throws -> [UInt8] {
        let left = try #require(client.engine.secondsToTimeout)
        // OpenSSL's timer uses the system clock.
        poll(nil, 0, Int32(left * 1e3) + 1)
        #expect(client.engine.handleTimeout() == nil)
        return try hello(of: client)
    }

    private func number(_ datagram: [UInt8]) throws -> UInt64 {
        try #require(datagram.withUnsafeBytes { RecordHeader($0) }).sequence
    }

    /// According to RFC 6347, section 4.2.1, the HelloVerifyRequest has the sequence number of the
    /// ClientHello without a cookie, and the ServerHello that of the ClientHello with it. A client drops
    /// records whose number it has already seen.
    @Test(arguments: 0...2, 0...2) func theServerTakesTheNumbersOfTheClientHellos(lostRequests: Int, lostHellos: Int) throws {
        let pair = try DatagramPair(Fixture.forDatagrams())
        let cookies = try DTLSCookies()
        var first = try hello(of: pair.client)
        for _ in 0..<lostRequests {
            #expect(try number(request(judge(cookies, first, from: address))) == number(first))
            first = try helloAgain(of: pair.client)
        }
        let asked = try request(judge(cookies, first, from: address))
        // OpenSSL retransmits a ClientHello if the timer expires while it is being sent.
        #expect(try number(asked) == number(first) && number(first) >= lostRequests)
        pair.client.receive(asked)
        var second = try hello(of: pair.client)
        for _ in 0..<lostHellos { second = try helloAgain(of: pair.client) }
        let number = try number(second)
        #expect(number >= lostRequests + 1 + lostHellos)
        #expect(second.withUnsafeBytes { pair.server.engine.listen($0) })
        pair.shakeHands(waits: false)
        #expect(pair.client.isComplete && pair.server.isComplete, "nothing had to be sent again")
        let plain = try numbers(ofPlainRecordsIn: pair.server.sent)
        #expect(plain == plain.indices.map { number + UInt64($0) })
    }

    /// Returns the sequence numbers of all records in the first epoch.
    private func numbers(ofPlainRecordsIn datagrams: [[UInt8]]) throws -> [UInt64] {
        var numbers: [UInt64] = []
        for datagram in datagrams {
            var rest = datagram[...]
            while !rest.isEmpty {
                let header = try #require(Array(rest).withUnsafeBytes { RecordHeader($0) })
                if header.epoch == 0 { numbers.append(header.sequence) }
                rest = rest.dropFirst(header.recordSize)
            }
        }
        try #require(!numbers.isEmpty)
        return numbers
    }

    /// The server retransmits its flight with new numbers.
    @Test func aRepeatedClientHelloBringsNewNumbers() throws {
        let pair = try DatagramPair(Fixture.forDatagrams())
        let cookies = try DTLSCookies()
        let first = try helloAgain(of: prepared(pair.client))
        pair.client.receive(try request(judge(cookies, first, from: address)))
        let second = try hello(of: pair.client)
        #expect(second.withUnsafeBytes { pair.server.engine.listen($0) })
        pair.server.shakeHands()
        var lost: [[UInt8]] = []
        pair.server.engine.sendOutput { datagrams in
            lost = datagrams.map { Array($0) }
            return datagrams.count
        }
        pair.server.receive(try helloAgain(of: pair.client))
        pair.shakeHands()
        #expect(pair.client.isComplete && pair.server.isComplete)
        let plain = try numbers(ofPlainRecordsIn: lost + pair.server.sent)
        #expect(try plain.first == number(second) && Set(plain).count == plain.count)
    }

    /// The first ClientHello is lost.
    private func prepared(_ client: DatagramPair.End) throws -> DatagramPair.End {
        _ = try hello(of: client)
        return client
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

    /// Returns a client that has received its first cookie.
    private func clientWithCookie() throws -> (DatagramPair.End, DTLSCookies, TestClock) {
        let clock = TestClock()
        let cookies = try DTLSCookies(clock: { clock.now })
        let client = DatagramPair.End(try Fixture.forDatagrams().datagramEngine(.client), firstTimeout: 60)
        client.receive(try request(judge(cookies, try hello(of: client), from: address)))
        return (client, cookies, clock)
    }

    @Test func aSecretCountsForTwoLifetimes() throws {
        let (client, cookies, clock) = try clientWithCookie()
        let second = try hello(of: client)
        clock.advance(milliseconds: DTLSCookies.lifetime / 1_000_000 + 1)
        guard case .admission = judge(cookies, second, from: address) else {
            Issue.record("the cookie of the earlier secret was refused")
            return
        }
        clock.advance(milliseconds: DTLSCookies.lifetime / 1_000_000 + 1)
        // The client receives another request and responds to it too.
        client.receive(try request(judge(cookies, second, from: address)))
        let third = try hello(of: client)
        guard case .admission = judge(cookies, third, from: address) else {
            Issue.record("the new cookie was refused")
            return
        }
    }

    /// No other client arrives meanwhile, so the secret is replaced only when its cookie comes back.
    @Test(arguments: [2, 3, 100]) func aCookieIsUselessAfterTwoLifetimes(lifetimes: Int) throws {
        let (client, cookies, clock) = try clientWithCookie()
        let second = try hello(of: client)
        clock.advance(milliseconds: lifetimes * DTLSCookies.lifetime / 1_000_000)
        // The client is not locked out: the new request has a cookie that is accepted.
        client.receive(try request(judge(cookies, second, from: address)))
        guard case .admission = judge(cookies, try hello(of: client), from: address) else {
            Issue.record("the new cookie was refused")
            return
        }
    }

    private func isAdmitted(_ hello: [UInt8], by cookies: DTLSCookies) -> Bool {
        if case .admission = judge(cookies, hello, from: address) { true } else { false }
    }

    /// The secrets continue in another process, which may have an earlier clock.
    @Test func anotherProcessAdmitsTheClient() throws {
        let (client, cookies, clock) = try clientWithCookie()
        let second = try hello(of: client)
        let otherClock = TestClock()
        let other = try DTLSCookies(clock: { otherClock.now })
        #expect(other.adopt(cookies.record) && isAdmitted(second, by: other))
        clock.advance(milliseconds: DTLSCookies.lifetime / 1_000_000 + 1)
        let stranger = DatagramPair.End(try Fixture.forDatagrams().datagramEngine(.client), firstTimeout: 60)
        _ = try request(judge(cookies, try hello(of: stranger), from: address))
        // Admitted by the earlier secret.
        let third = try DTLSCookies(clock: { otherClock.now })
        #expect(third.adopt(cookies.record) && isAdmitted(second, by: third))
        // The clock of this process decides when the secret expires.
        otherClock.advance(milliseconds: DTLSCookies.lifetime / 1_000_000 + 1)
        #expect(!isAdmitted(second, by: third))
        for length in [0, 8, 39, 41, 73] { #expect(!other.adopt([UInt8](repeating: 0, count: length))) }
    }

    @Test func anythingElseGetsNoAnswer() throws {
        let fixture = try Fixture.forDatagrams()
        let cookies = try DTLSCookies()
        let whole = try hello(of: DatagramPair.End(try fixture.datagramEngine(.client), firstTimeout: 60))
        // OpenSSL does not accept later message numbers.
        for number in 0...4 {
            var later = whole
            later[RecordHeader.size + 5] = UInt8(number)
            if case .none = judge(cookies, later, from: address) { #expect(number > 2) } else { #expect(number <= 2) }
        }
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
            // It must not crash, admit the client, or reply with more bytes than it received.
            switch judge(cookies, changed, from: address) {
            case .none: break
            case .request(let bytes): #expect(bytes.count <= changed.count)
            case .admission: Issue.record("a forged cookie was right")
            }
        }
    }
}
