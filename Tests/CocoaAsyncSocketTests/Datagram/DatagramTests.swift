import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Two local UDP sockets with their diaries.
struct Pair {
    let near: GCDAsyncUdpSocket
    let far: GCDAsyncUdpSocket
    let atNear = DatagramDiary()
    let atFar = DatagramDiary()

    init() throws {
        near = GCDAsyncUdpSocket(delegate: atNear, delegateQueue: DispatchQueue(label: "near"))
        far = GCDAsyncUdpSocket(delegate: atFar, delegateQueue: DispatchQueue(label: "far"))
        try far.bind(toPort: 0, interface: "127.0.0.1")
        try far.beginReceiving()
    }

    func send(_ text: String, tag: Int = 0) {
        near.send(Data(text.utf8), toHost: "127.0.0.1\0\0", port: far.localPort(), withTimeout: -1, tag: tag)
    }
}

@Suite(.timeLimit(.patient)) struct DatagramTests {
    private func code(_ body: () throws -> Void) -> GCDAsyncUdpSocketError.Code? {
        do { try body() } catch { return (error as? GCDAsyncUdpSocketError)?.code }
        return nil
    }

    @Test func aReplyReachesTheSenderOfADatagram() async throws {
        let pair = try Pair()
        pair.send("ping", tag: 4)
        try await pair.atFar.wait(for: "received ping")
        try await pair.atNear.wait(for: "sent 4")
        let sender = try #require(pair.atFar.sender)
        #expect(GCDAsyncUdpSocket.port(fromAddress: sender) == pair.near.localPort_IPv4())
        try pair.near.beginReceiving()
        pair.far.send(Data("pong".utf8), toAddress: sender, withTimeout: -1, tag: 5)
        try await pair.atNear.wait(for: "received pong")
    }

    @Test func aBoundSocketHasAnAddressOfEachFamily() throws {
        let diary = DatagramDiary()
        let socket = GCDAsyncUdpSocket(delegate: diary, delegateQueue: .main)
        try socket.bind(toPort: 0)
        #expect(!socket.isClosed() && socket.isIPv4() && socket.isIPv6() && socket.localPort() > 0)
        #expect(socket.localPort_IPv4() == socket.localPort_IPv6() && socket.localHost() == "0.0.0.0")
        #expect(socket.localHost_IPv4() == "0.0.0.0" && socket.localHost_IPv6() == "::")
        #expect(socket.localAddress() == socket.localAddress_IPv4() && socket.localAddress_IPv6() != nil)
        #expect(code { try socket.bind(toPort: 0) } == .badConfigError)
        socket.close()
        #expect(socket.isClosed() && socket.localPort() == 0 && socket.localAddress() == nil)
    }

    @Test func bindingRequiresADelegateAndAQueue() throws {
        let socket = GCDAsyncUdpSocket()
        #expect(code { try socket.bind(toPort: 0) } == .badConfigError)
        let diary = DatagramDiary()
        socket.setDelegate(diary)
        #expect(code { try socket.bind(toPort: 0) } == .badConfigError)
        socket.setDelegateQueue(.main)
        #expect(code { try socket.bind(toAddress: Data([7])) } == .badParamError)
        #expect(code { try socket.beginReceiving() } == .badConfigError && code { try socket.receiveOnce() } == .badConfigError)
        let address = try #require(try GCDAsyncSocket.lookupHost("127.0.0.1", port: 0)[0] as? Data)
        try socket.bind(toAddress: address)
        #expect(socket.isIPv4() && !socket.isIPv6() && socket.localHost() == "127.0.0.1")
        socket.close()
    }

    @Test func aConnectedUDPSocketSendsOnlyToItsPeer() async throws {
        let pair = try Pair()
        try pair.near.connect(toHost: "127.0.0.1\0", onPort: pair.far.localPort())
        try await pair.atNear.wait(for: "connected to 127.0.0.1")
        #expect(pair.near.isConnected() && pair.near.connectedHost() == "127.0.0.1")
        #expect(pair.near.connectedPort() == pair.far.localPort() && pair.near.connectedAddress() != nil)
        pair.near.send(Data("to the peer".utf8), withTimeout: -1, tag: 1)
        try await pair.atFar.wait(for: "received to the peer")
        #expect(code { try pair.near.connect(toHost: "127.0.0.1", onPort: 9) } == .badConfigError)
        // Sending to another address fails, and the socket stays open.
        pair.send("elsewhere", tag: 2)
        try await pair.atNear.wait(for: "not sent 2")
        #expect((pair.atNear.error as? GCDAsyncUdpSocketError)?.code == .badConfigError && pair.near.isConnected())
    }

    @Test func aUDPSocketConnectsToAnAddress() async throws {
        let pair = try Pair()
        let address = try #require(pair.far.localAddress())
        try pair.near.connect(toAddress: address)
        try await pair.atNear.wait(for: "connected to 127.0.0.1")
        #expect(pair.near.connectedAddress() == address)
    }

    @Test func anUnknownHostDoesNotCloseTheUDPSocket() async throws {
        let pair = try Pair()
        pair.near.send(Data("x".utf8), toHost: "nothing.invalid", port: 9, withTimeout: -1, tag: 1)
        try await pair.atNear.wait(for: "not sent 1")
        #expect((pair.atNear.error as NSError?)?.domain == "kCFStreamErrorDomainNetDB")
        try pair.near.connect(toHost: "nothing.invalid", onPort: 9)
        try await pair.atNear.wait(for: "not connected")
        pair.send("still open", tag: 2)
        try await pair.atFar.wait(for: "received still open")
    }

    @Test func d17AnErrorForOneDatagramLeavesTheSocketOpen() async throws {
        let pair = try Pair()
        pair.near.send(Data(count: 65_520), toHost: "127.0.0.1", port: pair.far.localPort(), withTimeout: -1, tag: 1)
        try await pair.atNear.wait(for: "not sent 1")
        let error = pair.atNear.error as NSError?
        #expect(error?.domain == NSPOSIXErrorDomain && error?.code == Int(EMSGSIZE))
        let port = pair.near.localPort()
        pair.send("still open", tag: 2)
        try await pair.atFar.wait(for: "received still open")
        #expect(!pair.near.isClosed() && pair.near.localPort() == port)
    }

    @Test func emptyDatagramsAreReceivedButNotSent() async throws {
        let pair = try Pair()
        pair.near.send(Data(), toHost: "127.0.0.1", port: pair.far.localPort(), withTimeout: -1, tag: 1)
        pair.send("next", tag: 2)
        try await pair.atNear.wait(for: "sent 2")
        #expect(pair.atNear.lines == ["sent 2"])
        // The original closed a socket that received an empty datagram.
        let descriptor = socket(AF_INET, Int32(SOCK_DGRAM.rawValue), 0)
        defer { close(descriptor) }
        let address = try #require(pair.far.localAddress())
        let sent = address.withUnsafeBytes { bytes in
            sendto(descriptor, nil, 0, 0, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
        }
        #expect(sent == 0)
        try await pair.atFar.wait(for: "received ")
        #expect(!pair.far.isClosed())
    }

    @Test func receiveOnceReceivesExactlyOneDatagram() async throws {
        let pair = try Pair()
        pair.far.pauseReceiving()
        try pair.far.receiveOnce()
        for number in 1...3 { pair.send("\(number)", tag: number) }
        try await pair.atFar.wait(for: "received 1")
        try await pair.atNear.wait(for: "sent 3")
        #expect(pair.atFar.lines == ["received 1"])
        try pair.far.receiveOnce()
        try await pair.atFar.wait(for: "received 2")
        try pair.far.beginReceiving()
        try await pair.atFar.wait(for: "received 3")
    }

    @Test func longDatagramsAreTruncatedToTheReceiveBufferSize() async throws {
        let pair = try Pair()
        #expect(pair.far.maxReceiveIPv4BufferSize() == 65_535 && pair.far.maxReceiveIPv6BufferSize() == 65_535)
        #expect(pair.far.maxSendBufferSize() == 65_535)
        pair.far.setMaxReceiveIPv4BufferSize(3)
        pair.far.setMaxReceiveIPv6BufferSize(70_000)
        pair.near.setMaxSendBufferSize(9_000)
        #expect(pair.far.maxReceiveIPv6BufferSize() == 70_000 && pair.near.maxSendBufferSize() == 9_000)
        pair.send("abcdef")
        try await pair.atFar.wait(for: "received abc")
    }

    /// Linux doubles the size of the send buffer, so the kernel itself would send the second datagram.
    @Test func aDatagramLargerThanTheSendBufferIsNotSent() async throws {
        let pair = try Pair()
        pair.near.setMaxSendBufferSize(5_000)
        try pair.far.beginReceiving()
        pair.send(String(repeating: "x", count: 5_001), tag: 1)
        try await pair.atNear.wait(for: "not sent 1")
        pair.send(String(repeating: "y", count: 5_000), tag: 2)
        try await pair.atFar.wait(for: "received " + String(repeating: "y", count: 5_000))
        #expect(pair.atFar.lines.count == 1)
    }

    @Test func settingsOfAUDPSocketCanBeReadAndChanged() throws {
        let socket = GCDAsyncUdpSocket(socketQueue: nil)
        #expect(socket.isIPVersionNeutral() && !socket.isIPv4Preferred() && !socket.isIPv6Preferred())
        socket.setPreferIPv4()
        #expect(socket.isIPv4Preferred() && !socket.isIPVersionNeutral())
        socket.setPreferIPv6()
        #expect(socket.isIPv6Preferred())
        socket.setIPVersionNeutral()
        socket.setIPv6Enabled(false)
        #expect(socket.isIPVersionNeutral() && !socket.isIPv6Enabled())
        socket.setUserData(["a": 1])
        #expect(socket.userData() as? [String: Int] == ["a": 1])
    }

    @Test func theDelegateAndQueueOfAUDPSocketCanBeReadAndSet() {
        let (first, second) = (DatagramDiary(), DatagramDiary())
        let (queue, other) = (DispatchQueue(label: "first"), DispatchQueue(label: "other"))
        let socket = GCDAsyncUdpSocket(delegate: first, delegateQueue: queue)
        socket.setDelegate(second)
        socket.setDelegateQueue(other)
        var (delegate, delegateQueue): ((any GCDAsyncUdpSocketDelegate)?, DispatchQueue?)
        socket.getDelegate(&delegate, delegateQueue: &delegateQueue)
        #expect(delegate === second && delegateQueue === other)
        socket.setDelegate(first, delegateQueue: queue)
        #expect(socket.delegate() === first && socket.delegateQueue() === queue)
        socket.synchronouslySetDelegate(second)
        socket.synchronouslySetDelegateQueue(other)
        #expect(socket.delegate() === second && socket.delegateQueue() === other)
        socket.synchronouslySetDelegate(nil, delegateQueue: nil)
        #expect(socket.delegate() == nil && socket.delegateQueue() == nil)
    }

    @Test func aUDPDelegateMayOmitAllMethods() async throws {
        let pair = try Pair()
        let silent = SilentDatagramObserver()
        pair.far.setDelegate(silent)
        pair.send("unheard", tag: 1)
        try await pair.atNear.wait(for: "sent 1")
        pair.far.setDelegate(pair.atFar)
        pair.send("heard", tag: 2)
        try await pair.atFar.wait(for: "received heard")
    }

    @Test func performGivesAccessToTheDescriptorsOfAUDPSocket() throws {
        let pair = try Pair()
        #expect(pair.far.socketFD() == -1)
        var descriptors: [Int32] = []
        pair.far.perform { descriptors = [pair.far.socketFD(), pair.far.socket4FD(), pair.far.socket6FD()] }
        #expect(descriptors.count == 3 && descriptors[0] >= 0 && descriptors[0] == descriptors[1] && descriptors[2] == -1)
    }
}
