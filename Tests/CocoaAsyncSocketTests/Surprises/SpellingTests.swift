import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct SpellingTests {
    private func address(_ host: String, port: UInt16 = 80) throws -> Data {
        let addresses = try GCDAsyncSocket.lookupHost(host, port: port)
        return try #require(addresses[0] as? Data)
    }

    @Test func accessorsAreMethodsForUDPAndPropertiesForTCP() throws {
        let udp = GCDAsyncUdpSocket()
        #expect(udp.localPort() == 0 && udp.localHost() == nil && udp.isClosed() && !udp.isConnected())
        #expect(udp.delegate() == nil && udp.userData() == nil && udp.isIPv4Enabled())
        udp.setIPv4Enabled(false)
        #expect(!udp.isIPv4Enabled() && udp.isIPv6Enabled())
        let tcp = GCDAsyncSocket()
        tcp.isIPv4Enabled = false
        #expect(tcp.localPort == 0 && tcp.localHost == nil && tcp.isDisconnected && !tcp.isConnected && !tcp.isIPv4Enabled)
    }

    @Test func progressMethodsHaveTheirImportedSwiftNames() {
        let socket = GCDAsyncSocket()
        var (tag, done, total): (Int, UInt, UInt) = (1, 1, 1)
        let reading: Float = socket.progress(ofReadReturningTag: &tag, bytesDone: &done, total: &total)
        let writing: Float = socket.progress(ofWriteReturningTag: nil, bytesDone: nil, total: nil)
        #expect(reading.isNaN && writing.isNaN && tag == 0 && done == 0 && total == 0)
    }

    @Test func bothSpellingsOfMarkQueueTargetQueueWork() {
        let (target, other) = (DispatchQueue(label: "target"), DispatchQueue(label: "other"))
        let socket = GCDAsyncSocket(socketQueue: DispatchQueue(label: "socket", target: target))
        socket.markSocketQueueTargetQueue(other)
        // A block that is already on the socket's queue runs immediately. Otherwise this would deadlock.
        var wasCalled = false
        other.sync { socket.perform { wasCalled = true } }
        #expect(wasCalled)
        socket.unmarkSocketQueueTargetQueue(other)
        let udp = GCDAsyncUdpSocket(socketQueue: DispatchQueue(label: "datagrams", target: target))
        udp.markQueueTargetQueue(target)
        var wasCalledAgain = false
        target.sync { udp.perform { wasCalledAgain = true } }
        udp.unmarkSocketQueueTargetQueue(target)
        #expect(wasCalledAgain)
    }

    @Test func getHostReturnsTheHostAsAnNSString() throws {
        let (host, port) = Spellings.hostAndPort(try address("127.0.0.1", port: 4711))
        #expect(host == "127.0.0.1" && port == 4711)
        #expect(Spellings.hostAndPort(Data([1, 2, 3])).host == nil)
    }

    @Test func theClassMethodsReturnTheHostPortAndFamilyOfAnAddress() throws {
        let (ipv4, ipv6) = (try address("127.0.0.1"), try address("::1"))
        #expect(GCDAsyncSocket.host(fromAddress: ipv4) == "127.0.0.1" && GCDAsyncSocket.port(fromAddress: ipv4) == 80)
        #expect(GCDAsyncSocket.isIPv4Address(ipv4) && !GCDAsyncSocket.isIPv6Address(ipv4))
        #expect(GCDAsyncUdpSocket.host(fromAddress: ipv6) == "::1" && GCDAsyncUdpSocket.port(fromAddress: ipv6) == 80)
        #expect(GCDAsyncUdpSocket.isIPv6Address(ipv6) && !GCDAsyncUdpSocket.isIPv4Address(ipv6))
        #expect(GCDAsyncUdpSocket.family(fromAddress: ipv6) == AF_INET6)
        let (stream, datagram) = Spellings.family(ipv4)
        #expect(stream == sa_family_t(AF_INET) && datagram == AF_INET)
    }

    @Test func localhostResolvesToBothLoopbackAddresses() throws {
        let addresses = try GCDAsyncSocket.lookupHost("localhost", port: 25).compactMap { $0 as? Data }
        #expect(addresses.compactMap(GCDAsyncSocket.host(fromAddress:)) == ["127.0.0.1", "::1"])
        #expect(addresses.map(GCDAsyncSocket.port(fromAddress:)) == [25, 25])
    }

    @Test func lookingUpAnUnknownHostThrowsANetDBError() {
        let error = #expect(throws: (any Error).self) { try GCDAsyncSocket.lookupHost("nothing.invalid", port: 1) }
        #expect((error as NSError?)?.domain == "kCFStreamErrorDomainNetDB")
    }

    @Test func classMethodsReturnTheDelimiters() {
        let all = [GCDAsyncSocket.crlfData(), GCDAsyncSocket.crData(), GCDAsyncSocket.lfData(), GCDAsyncSocket.zeroData()]
        #expect(all == [Data([13, 10]), Data([13]), Data([10]), Data([0])])
    }

    @Test func appleSpellingsOfTLSSettingsCompile() throws {
        let identity = try TestIdentity.make()
        let settings = Spellings.settings(identity.identity, identity.certificate)
        #expect(settings.count == 12)
        #expect(settings[GCDAsyncSocketSSLPeerName] as? String == "localhost")
        #expect(settings[GCDAsyncSocketSSLIsServer] as? Bool == true)
        #expect((settings[GCDAsyncSocketSSLCertificates] as? NSArray)?.firstObject is SecIdentity)
    }

    @Test func theConstantsHaveTheValuesOfGCDAsyncSocket() {
        #expect(GCDAsyncSocketErrorDomain == "GCDAsyncSocketErrorDomain" && GCDAsyncSocketException == "GCDAsyncSocketException")
        #expect(GCDAsyncSocketQueueName == "GCDAsyncSocket" && GCDAsyncSocketThreadName == "GCDAsyncSocket-CFStream")
        #expect(GCDAsyncSocketLoggingContext == 65535 && Spellings.pooled() == 42)
        #expect(GCDAsyncUdpSocketErrorDomain == "GCDAsyncUdpSocketErrorDomain")
        #expect(GCDAsyncUdpSocketException == "GCDAsyncUdpSocketException")
        #expect(GCDAsyncUdpSocketQueueName == "GCDAsyncUdpSocket" && GCDAsyncUdpSocketThreadName == "GCDAsyncUdpSocket-CFStream")
        #expect(kCFStreamErrorDomainSSL == 3 && kCFStreamErrorDomainNetDB == 12)
        #expect([SSLProtocol.tlsProtocol1, .tlsProtocol11, .tlsProtocol12, .tlsProtocol13].map(\.rawValue) == [4, 7, 8, 10])
    }
}
