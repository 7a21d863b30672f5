import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestTraits
import Testing

/// Errors for misuse have the codes and messages of the original.
@Suite(.timeLimit(.patient)) struct MisuseTests {
    private let unknown = "Unknown interface. Specify valid interface by name (e.g. \"en1\") or IP address."

    private func refusal(_ body: () throws -> Void) -> String? {
        do { try body() } catch {
            let error = error as NSError
            return "\(error.domain) \(error.code): \(error.localizedDescription)"
        }
        return nil
    }

    private func stream(_ code: GCDAsyncSocketError.Code, _ text: String) -> String {
        "\(GCDAsyncSocketErrorDomain) \(code.rawValue): \(text)"
    }

    private func datagram(_ code: GCDAsyncUdpSocketError.Code, _ text: String) -> String {
        "\(GCDAsyncUdpSocketErrorDomain) \(code.rawValue): \(text)"
    }

    @Test func anEmptyHostIsRejectedBeforeAMissingDelegate() {
        let text = "Invalid host parameter (nil or \"\"). Should be a domain name or IP address string."
        #expect(refusal { try GCDAsyncSocket().connect(toHost: "", onPort: 1) } == stream(.badParamError, text))
        let diary = Diary()
        #expect(refusal { try makeSocket(diary).connect(toHost: "", onPort: 1) } == stream(.badParamError, text))
    }

    @Test func anUnknownInterfaceIsRejectedByAllMethods() throws {
        let (diary, datagrams) = (Diary(), DatagramDiary())
        let socket = makeSocket(diary)
        let refused = stream(.badParamError, unknown)
        #expect(refusal { try socket.accept(onInterface: "nothing0", port: 0) } == refused)
        #expect(
            refusal { try socket.connect(toHost: "127.0.0.1", onPort: 1, viaInterface: "nothing0", withTimeout: 1) } == refused)
        let udp = GCDAsyncUdpSocket(delegate: datagrams, delegateQueue: DispatchQueue(label: "datagrams"))
        #expect(refusal { try udp.bind(toPort: 0, interface: "nothing0") } == datagram(.badParamError, unknown))
        try udp.bind(toPort: 0)
        #expect(
            refusal { try udp.joinMulticastGroup("239.255.42.98", onInterface: "nothing0") }
                == datagram(.badParamError, unknown))
        #expect(socket.isDisconnected && diary.lines.isEmpty)
    }

    @Test func anInterfaceWithoutTheOtherVersionOfIPIsRefused() {
        let (diary, datagrams) = (Diary(), DatagramDiary())
        let socket = makeSocket(diary)
        let udp = GCDAsyncUdpSocket(delegate: datagrams, delegateQueue: DispatchQueue(label: "datagrams"))
        (socket.isIPv4Enabled, socket.isIPv6Enabled) = (false, true)
        udp.setIPv4Enabled(false)
        let noIPv6 = "IPv4 has been disabled and specified interface doesn't support IPv6."
        #expect(refusal { try socket.accept(onInterface: "127.0.0.1", port: 0) } == stream(.badParamError, noIPv6))
        #expect(refusal { try udp.bind(toPort: 0, interface: "127.0.0.1") } == datagram(.badParamError, noIPv6))
        (socket.isIPv4Enabled, socket.isIPv6Enabled) = (true, false)
        udp.setIPv4Enabled(true)
        udp.setIPv6Enabled(false)
        let noIPv4 = "IPv6 has been disabled and specified interface doesn't support IPv4."
        #expect(refusal { try socket.accept(onInterface: "::1", port: 0) } == stream(.badParamError, noIPv4))
        #expect(refusal { try udp.bind(toPort: 0, interface: "::1") } == datagram(.badParamError, noIPv4))
    }

    @Test func aSocketNeedsAVersionOfIP() {
        let (diary, datagrams) = (Diary(), DatagramDiary())
        let socket = makeSocket(diary)
        let udp = GCDAsyncUdpSocket(delegate: datagrams, delegateQueue: DispatchQueue(label: "datagrams"))
        (socket.isIPv4Enabled, socket.isIPv6Enabled) = (false, false)
        udp.setIPv4Enabled(false)
        udp.setIPv6Enabled(false)
        let text = "Both IPv4 and IPv6 have been disabled. Must enable at least one protocol first."
        #expect(refusal { try socket.accept(onPort: 0) } == stream(.badConfigError, text))
        #expect(refusal { try socket.connect(toHost: "127.0.0.1", onPort: 1) } == stream(.badConfigError, text))
        #expect(refusal { try udp.bind(toPort: 0) } == datagram(.badConfigError, text))
        #expect(refusal { try udp.connect(toHost: "127.0.0.1", onPort: 1) } == datagram(.badConfigError, text))
    }

    @Test func receivingRequiresABoundSocket() throws {
        let diary = DatagramDiary()
        let socket = GCDAsyncUdpSocket(delegate: diary, delegateQueue: DispatchQueue(label: "datagrams"))
        let refused = datagram(
            .badConfigError,
            "Must bind socket before you can receive data. "
                + "You can do this explicitly via bind, or implicitly via connect or by sending data.")
        #expect(refusal { try socket.beginReceiving() } == refused && refusal { try socket.receiveOnce() } == refused)
        try socket.bind(toPort: 0)
        #expect(refusal { try socket.beginReceiving() } == nil)
        socket.close()
        #expect(refusal { try socket.beginReceiving() } == refused)
    }

    @Test func creatingDescriptorsRequiresADelegateAndAQueue() {
        let socket = GCDAsyncUdpSocket()
        let calls: [() throws -> Void] = [
            { try socket.enableBroadcast(true) }, { try socket.enableReusePort(true) },
            { try socket.sendIPv4Multicast(onInterface: "127.0.0.1") }, { try socket.sendIPv6Multicast(onInterface: "lo") },
        ]
        let noDelegate = datagram(.badConfigError, "Attempting to use socket without a delegate. Set a delegate first.")
        #expect(calls.map(refusal) == [noDelegate, noDelegate, noDelegate, noDelegate])
        let diary = DatagramDiary()
        socket.setDelegate(diary)
        let noQueue = datagram(
            .badConfigError, "Attempting to use socket without a delegate queue. Set a delegate queue first.")
        #expect(calls.map(refusal) == [noQueue, noQueue, noQueue, noQueue] && socket.isClosed())
    }

    @Test func joiningAGroupRequiresABoundUnconnectedSocket() async throws {
        let pair = try Pair()
        let refused = datagram(.badConfigError, "Must bind a socket before joining a multicast group.")
        #expect(refusal { try pair.near.joinMulticastGroup("239.255.42.98") } == refused)
        #expect(refusal { try pair.near.leaveMulticastGroup("239.255.42.98") } == refused)
        try pair.near.connect(toHost: "127.0.0.1", onPort: pair.far.localPort())
        try await pair.atNear.wait(for: "connected to 127.0.0.1")
        let connected = datagram(.badConfigError, "Cannot join a multicast group if connected.")
        #expect(refusal { try pair.near.joinMulticastGroup("239.255.42.98") } == connected)
    }

    @Test func aSocketCannotBeBoundTwiceOrAfterConnecting() async throws {
        let pair = try Pair()
        let twice = datagram(.badConfigError, "Cannot bind a socket more than once.")
        #expect(refusal { try pair.far.bind(toPort: 0) } == twice)
        let address = try #require(pair.far.localAddress())
        #expect(refusal { try pair.far.bind(toAddress: address) } == twice)
        try pair.near.connect(toAddress: address)
        try await pair.atNear.wait(for: "connected to 127.0.0.1")
        #expect(refusal { try pair.near.bind(toPort: 0) } == twice)
        let again = datagram(.badConfigError, "Cannot connect a socket more than once.")
        #expect(refusal { try pair.near.connect(toAddress: address) } == again)
    }
}
