import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketTLS

/// Attacks on DTLS with datagrams whose source address is forged.
@Suite(.timeLimit(.patient)) struct DTLSForgeryTests {
    /// One suite for each length of overhead. OpenSSL 3.5 does not allow the one with an eight-byte tag.
    private static let suites = [
        "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES256-CCM", "ECDHE-ECDSA-AES256-CCM8",
    ].filter { suite in
        guard var fixture = try? Fixture.forDatagrams() else { return true }
        fixture.client.policy.cipherSuites = [suite]
        return suite.hasSuffix("CCM8") ? (try? fixture.datagramEngine(.client)) != nil : true
    }

    /// OpenSSL would close the connection at a record that is shorter than its cipher's overhead.
    @Test(
        arguments: [0, 1, 7, 8, 15, 16, 17, 23, 24, 31, 40, 47, 48, 49, 100, 16_384, 17_728, 17_729, 18_432],
        suites)
    func aForgedRecordOfAnyLengthChangesNothing(_ length: Int, _ suite: String) throws {
        var fixture = try Fixture.forDatagrams()
        fixture.client.policy.cipherSuites = [suite]
        fixture.server.policy.cipherSuites = [suite]
        let pair = try DatagramPair(fixture)
        pair.client.shakeHands()
        pair.carry()
        pair.server.shakeHands()
        func forge() {
            for (type, version) in [(20, 0xFD), (21, 0xFD), (22, 0xFD), (23, 0xFD), (23, 0xFF)] as [(UInt8, UInt8)] {
                let header = [type, 0xFE, version, 0, 1, 0, 0, 0, 0, 9, 9, UInt8(length >> 8), UInt8(length & 0xFF)]
                pair.server.receive(header + [UInt8](repeating: 7, count: length))
            }
        }
        forge()
        pair.shakeHands(waits: false)
        try #require(pair.client.isComplete && pair.server.isComplete)
        let count = pair.server.engine.droppedRecordCount
        forge()
        pair.server.readAll()
        #expect(pair.server.engine.droppedRecordCount == count + 5)
        pair.send([1], from: .client)
        pair.send([1, 2, 3], from: .client)
        pair.send([4], from: .server)
        #expect(pair.server.messages == [[1], [1, 2, 3]] && pair.client.messages == [[4]])
    }

    @Test(arguments: [0x0303, 0xFEFC, 0xFEFE, 0x0100] as [UInt16])
    func aRecordOfAnotherVersionIsDropped(_ version: UInt16) throws {
        let engine = try Fixture.forDatagrams().datagramEngine(.client)
        let record = [22, UInt8(version >> 8), UInt8(version & 0xFF), 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0] as [UInt8]
        record.withUnsafeBytes { engine.receive($0) }
        #expect(engine.droppedRecordCount == 1 && engine.acceptedRecordCount == 0)
    }

    /// The limit is the maximum length of an encrypted record (RFC 5246, 6.2.3).
    @Test(arguments: [(0, false), (1, true), (18_432, true), (18_433, false)])
    func aRecordWithoutBytesOrWithTooManyIsDropped(_ length: Int, isAccepted: Bool) throws {
        let engine = try Fixture.forDatagrams().datagramEngine(.client)
        let header = [22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 1, UInt8(length >> 8), UInt8(length & 0xFF)]
        (header + [UInt8](repeating: 1, count: length)).withUnsafeBytes { engine.receive($0) }
        #expect(engine.droppedRecordCount == (isAccepted ? 0 : 1) && engine.acceptedRecordCount == (isAccepted ? 1 : 0))
    }

    /// With CBC, a forged record of any length would close the connection, because OpenSSL treats an invalid
    /// MAC as fatal.
    @Test func suitesWithCBCAreNotForDTLS() throws {
        var fixture = try Fixture.forDatagrams()
        fixture.client.policy.cipherSuites = ["ECDHE-ECDSA-AES128-SHA"]
        let error = #expect(throws: TLSError.self) { try fixture.datagramEngine(.client) }
        #expect(error?.code == .invalidSettings && error?.message.contains("no AEAD suite for DTLS 1.2") == true)
        // Only the AEAD suites in a longer list are used.
        fixture.client.policy = .compatible
        let pair = try DatagramPair(fixture)
        pair.client.shakeHands()
        pair.carry()
        let hello = try #require(pair.client.sent.first)
        // ECDHE-ECDSA-AES128-GCM-SHA256, and ECDHE-ECDSA-AES128-SHA256 and -SHA.
        func offers(_ suite: [UInt8]) -> Bool { Data(hello).range(of: Data(suite)) != nil }
        #expect(offers([0xC0, 0x2B]) && !offers([0xC0, 0x23]) && !offers([0xC0, 0x09]))
    }

    /// OpenSSL would keep a 17 KB buffer for each of up to a hundred records that arrive before their keys.
    @Test func recordsThatComeBeforeTheirKeysAreFew() throws {
        let pair = try DatagramPair(.forDatagrams())
        pair.client.shakeHands()
        pair.carry()
        pair.server.shakeHands()
        pair.server.receive(Self.records(100))
        pair.server.shakeHands()
        #expect(pair.server.engine.droppedRecordCount == 84)
        // They do not affect the handshake.
        pair.shakeHands(waits: false)
        #expect(pair.client.isComplete && pair.server.isComplete)
        pair.send([1, 2, 3], from: .client)
        #expect(pair.server.messages == [[1, 2, 3]])
        // At least 100, because client retransmissions may also be counted.
        #expect(pair.server.engine.droppedRecordCount >= 100)
    }

    /// For the first fragment of a message, OpenSSL allocates the whole length, for up to eleven messages at
    /// a time.
    @Test(arguments: [false, true]) func messagesThatHaveBegunHaveALimitInAll(_ asksForCertificates: Bool) throws {
        var fixture = try Fixture.forDatagrams()
        if asksForCertificates {
            try fixture.askForClientCertificate()
            try fixture.showClientCertificate()
        }
        let pair = try DatagramPair(fixture)
        pair.client.shakeHands()
        pair.carry()
        pair.server.shakeHands()
        let length = 30_000
        for message in 8..<20 {
            let header: [UInt8] = [22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 20 + UInt8(message), 0, 13]
            let fragment = [11, 0, UInt8(length >> 8), UInt8(length & 0xFF), 0, UInt8(message), 0, 0, 5, 0, 0, 1, 7] as [UInt8]
            pair.server.receive(header + fragment)
            pair.server.shakeHands()
        }
        // 64 KiB are enough for two, and the room for certificates for two more.
        #expect(pair.server.engine.droppedRecordCount == (asksForCertificates ? 8 : 10))
        pair.shakeHands(waits: false)
        #expect(pair.client.isComplete && pair.server.isComplete)
    }

    /// A handshake message may need many datagrams.
    @Test func aLongCertificateComesInFragments() throws {
        var fixture = try Fixture.forDatagrams()
        let names = [Fixture.host] + (0..<1_200).map { "name-\($0).of-a-host-with-many-names.example" }
        fixture.server.identity = try fixture.authority.issue(.server(names: names)).identity()
        let pair = try DatagramPair(fixture, size: 1200)
        pair.shakeHands()
        #expect(pair.client.isComplete && pair.server.isComplete)
        #expect(pair.server.sent.count > 40)
    }

    @Test func theLimitOfMessagesThatHaveBegunFollowsTheSettings() throws {
        func admitted(_ settings: TLSSettingValues) -> Int {
            var fragments = HandshakeFragments(with: settings)
            return (0..<30).prefix { message in
                // A fragment with one byte of a message of 10,000 bytes.
                let fragment: [UInt8] = [11, 0, 0x27, 0x10, 0, UInt8(message), 0, 0, 0, 0, 0, 1, 7]
                return fragment.withUnsafeBytes { fragments.admits($0[...]) }
            }.count
        }
        var fixture = try Fixture.forDatagrams()
        #expect(admitted(fixture.server.values) == 64 * 1024 / 10_064)
        #expect(admitted(fixture.client.values) == 192 * 1024 / 10_064)
        try fixture.askForClientCertificate()
        #expect(admitted(fixture.server.values) == 128 * 1024 / 10_064)
        fixture.server.maximumCertificateChainBytes = 1024
        #expect(admitted(fixture.server.values) == 65 * 1024 / 10_064)
    }

    /// Neither is useful, and both would use up the room for others.
    @Test func fragmentsWithoutUseDoNotCount() throws {
        var fragments = HandshakeFragments(with: try Fixture.forDatagrams().server.values)
        let (late, empty): ([UInt8], [UInt8]) = (
            [11, 0, 0xFF, 0, 0, 32, 0, 0, 0, 0, 0, 1, 7], [11, 0, 0xFF, 0, 0, 1, 0, 0, 0, 0, 0, 0]
        )
        let whole: [UInt8] = [14, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
        for _ in 0..<10 {
            #expect(!late.withUnsafeBytes { fragments.admits($0[...]) })
            #expect(!empty.withUnsafeBytes { fragments.admits($0[...]) })
            #expect(whole.withUnsafeBytes { fragments.admits($0[...]) })
        }
    }

    /// Datagrams that arrive while another thread is signing are queued, up to the usual limit.
    @Test func datagramsThatWaitForASignatureHaveALimitInBytes() throws {
        var fixture = try Fixture.forDatagrams()
        fixture.server.identity = try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa3072).identity()
        let server = try fixture.datagramEngine(.server, defersWork: true)
        let client = try fixture.datagramEngine(.client)
        _ = client.handshake()
        client.sendOutput { datagrams in
            for datagram in datagrams { server.receive(datagram) }
            return datagrams.count
        }
        guard case .awaitingWork(let work) = server.handshake() else {
            Issue.record("there is no work")
            return
        }
        let datagram = Self.records(900)
        #expect(datagram.count == 54_900)
        for _ in 0..<60 { datagram.withUnsafeBytes { server.receive($0) } }
        #expect(server.droppedRecordCount == 59)
        work.perform()
        server.takeBackWork()
        guard case .incomplete = server.handshake() else {
            Issue.record("it does not go on")
            return
        }
        #expect(server.hasOutput)
    }

    /// Returns data records of the second epoch with arbitrary bytes.
    private static func records(_ count: Int) -> [UInt8] {
        (0..<count).flatMap { number in
            let header: [UInt8] = [23, 0xFE, 0xFD, 0, 1, 0, 0, 0, 0, UInt8(number >> 8), UInt8(number & 0xFF), 0, 48]
            return header + [UInt8](repeating: 7, count: 48)
        }
    }
}
