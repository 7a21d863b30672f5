import AsyncSockets
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import CocoaAsyncSocket

/// UDP sockets with descriptors that an option created before the socket is bound.
@Suite(.timeLimit(.patient)) struct CreatedSocketTests {
    /// The calls that create descriptors without binding them.
    enum Option: CaseIterable, Sendable {
        case broadcast, reusePort, multicastInterface

        func set(on socket: GCDAsyncUdpSocket) throws {
            switch self {
            case .broadcast: try socket.enableBroadcast(true)
            case .reusePort: try socket.enableReusePort(true)
            case .multicastInterface: try socket.sendIPv4Multicast(onInterface: "127.0.0.1")
            }
        }
    }

    /// As in SSDP clients, which never bind their socket.
    @Test(arguments: Option.allCases) func aSocketThatWasOnlyCreatedReceivesReplies(after option: Option) async throws {
        let pair = try Pair()
        try option.set(on: pair.near)
        try pair.near.beginReceiving()
        pair.send("M-SEARCH")
        try await pair.atFar.wait(for: "received M-SEARCH")
        let sender = try #require(pair.atFar.sender)
        #expect(GCDAsyncUdpSocket.port(fromAddress: sender) == pair.near.localPort())
        for reply in ["first", "second"] { pair.far.send(Data(reply.utf8), toAddress: sender, withTimeout: -1, tag: 1) }
        try await pair.atNear.wait(for: "received second")
        #expect(pair.atNear.lines.filter { $0.hasPrefix("received") } == ["received first", "received second"])
    }

    @Test func receiveOnceCanBeCalledBeforeBinding() async throws {
        let pair = try Pair()
        try pair.near.enableBroadcast(true)
        try pair.near.receiveOnce()
        try pair.near.bind(toPort: 0, interface: "127.0.0.1")
        let address = try #require(pair.near.localAddress())
        for text in ["1", "2"] { pair.far.send(Data(text.utf8), toAddress: address, withTimeout: -1, tag: 1) }
        try await pair.atNear.wait(for: "received 1")
        #expect(!pair.atNear.has("received 2"))
        try pair.near.receiveOnce()
        try await pair.atNear.wait(for: "received 2")
    }

    // MARK: - Descriptors

    private func descriptors(of socket: GCDAsyncUdpSocket) -> [Int32] {
        var descriptors: [Int32] = []
        socket.perform { descriptors = [socket.socketFD(), socket.socket4FD(), socket.socket6FD()] }
        return descriptors
    }

    private func option(_ name: Int32, of descriptor: Int32) -> Int32 {
        var (value, size) = (Int32(-1), socklen_t(MemoryLayout<Int32>.size))
        getsockopt(descriptor, SOL_SOCKET, name, &value, &size)
        return value
    }

    /// Programs also set their own options on the descriptor.
    @Test func bindingUsesTheDescriptorsThatAnOptionCreated() throws {
        let pair = try Pair()
        try pair.near.enableReusePort(true)
        let created = descriptors(of: pair.near)
        #expect(created[0] >= 0 && created[0] == created[1] && created[2] >= 0 && created[2] != created[1])
        try pair.near.enableBroadcast(true)
        try pair.near.bind(toPort: 0)
        #expect(descriptors(of: pair.near) == created && pair.near.localPort_IPv4() == pair.near.localPort_IPv6())
        for descriptor in created {
            #expect(option(SO_REUSEPORT, of: descriptor) == 1 && option(SO_BROADCAST, of: descriptor) == 1)
        }
    }

    /// The port that the kernel chooses for IPv4 may be in use for IPv6. The socket then tries another port.
    @Test func aConflictOfPortsDoesNotReplaceDescriptors() throws {
        let diary = DatagramDiary()
        let occupants = (0..<300).map { _ in socket(AF_INET6, Int32(SOCK_DGRAM.rawValue), 0) }
        defer { for occupant in occupants { close(occupant) } }
        for occupant in occupants { #expect(Self.bindToAnyPort(occupant) == 0) }
        // A conflict occurs about once in 94 rounds.
        for _ in 0..<600 {
            let socket = GCDAsyncUdpSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
            try socket.enableBroadcast(true)
            let created = descriptors(of: socket)
            try socket.bind(toPort: 0)
            #expect(descriptors(of: socket) == created && socket.localPort_IPv4() == socket.localPort_IPv6())
            socket.close()
        }
    }

    /// Binds an IPv6 descriptor, without occupying the port for IPv4.
    private static func bindToAnyPort(_ descriptor: Int32) -> Int32 {
        var isForIPv6Only: Int32 = 1
        setsockopt(descriptor, Int32(IPPROTO_IPV6), IPV6_V6ONLY, &isForIPv6Only, socklen_t(MemoryLayout<Int32>.size))
        var address = sockaddr_in6()
        address.sin6_family = sa_family_t(AF_INET6)
        return withUnsafePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in6>.size))
            }
        }
    }

    @Test func connectingUsesTheDescriptorThatAnOptionCreated() async throws {
        let pair = try Pair()
        try pair.near.enableBroadcast(true)
        let created = descriptors(of: pair.near)
        try pair.near.connect(toHost: "127.0.0.1", onPort: pair.far.localPort())
        try await pair.atNear.wait(for: "connected to 127.0.0.1")
        #expect(descriptors(of: pair.near) == [created[1], created[1], -1] && option(SO_BROADCAST, of: created[1]) == 1)
    }

    @Test func onlyTheEnabledVersionsOfIPHaveADescriptor() throws {
        let pair = try Pair()
        pair.near.setIPv4Enabled(false)
        try pair.near.enableReusePort(true)
        #expect(!pair.near.isIPv4() && pair.near.isIPv6())
        let created = descriptors(of: pair.near)
        #expect(created[0] >= 0 && created[0] == created[2] && created[1] == -1)
        let other = GCDAsyncUdpSocket(delegate: pair.atNear, delegateQueue: DispatchQueue(label: "other"))
        other.setIPv4Enabled(false)
        other.setIPv6Enabled(false)
        let error = #expect(throws: GCDAsyncUdpSocketError.self) { try other.enableBroadcast(true) }
        #expect(error?.code == .badConfigError && other.isClosed())
    }

    @Test(arguments: [true, false]) func theUnboundDescriptorsAreClosed(byRelease isReleased: Bool) async throws {
        let diary = DatagramDiary()
        var socket: GCDAsyncUdpSocket? = GCDAsyncUdpSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
        try socket?.enableBroadcast(true)
        let files = try #require(socket.map(descriptors)).map { ($0, Self.file(of: $0)) }
        #expect(files.allSatisfy { $0.1 != nil })
        if isReleased { socket = nil } else { socket?.close() }
        // The descriptor numbers may already belong to other files.
        try await eventually("the descriptors are closed") { files.allSatisfy { Self.file(of: $0.0) != $0.1 } }
    }

    private static func file(of number: Int32) -> ino_t? {
        var facts = stat()
        return fstat(number, &facts) == 0 ? facts.st_ino : nil
    }

    // MARK: - Failures

    @Test func aFailedBindClosesTheCreatedDescriptors() async throws {
        let pair = try Pair()
        try pair.near.enableBroadcast(true)
        #expect(throws: (any Error).self) { try pair.near.bind(toPort: pair.far.localPort(), interface: "127.0.0.1") }
        #expect(pair.near.isClosed() && pair.near.localPort() == 0)
        let error = #expect(throws: GCDAsyncUdpSocketError.self) { try pair.near.beginReceiving() }
        #expect(error?.code == .badConfigError)
        try pair.near.bind(toPort: 0)
        pair.near.close()
        try await pair.atNear.wait(for: "closed")
        #expect(pair.atNear.lines == ["closed"])
    }

    /// Linux binds a socket that fails to connect. The socket is unbound again.
    @Test func aSocketThatFailedToConnectCanBeBound() async throws {
        let pair = try Pair()
        let everyone = try #require(try GCDAsyncSocket.lookupHost("255.255.255.255", port: 9)[0] as? Data)
        try pair.near.connect(toAddress: everyone)
        try await pair.atNear.wait(for: "not connected")
        #expect((pair.atNear.error as NSError?)?.domain == NSPOSIXErrorDomain)
        #expect(!pair.near.isClosed() && !pair.near.isConnected() && pair.near.localPort() == 0)
        try pair.near.beginReceiving()
        try pair.near.bind(toPort: 0, interface: "127.0.0.1")
        let address = try #require(pair.near.localAddress())
        pair.far.send(Data("after the failure".utf8), toAddress: address, withTimeout: -1, tag: 1)
        try await pair.atNear.wait(for: "received after the failure")
    }

    @Test func aConnectingSocketIsCreatedButNotBound() async throws {
        let (pair, gate) = (try Pair(), DispatchSemaphore(value: 0))
        pair.near.core.resolver = Resolver(concurrency: 1) { query in
            gate.wait()
            return .failure(ResolveError(query, code: EAI_NONAME))
        }
        try pair.near.connect(toHost: "peer.example", onPort: 9)
        let messages: [(String, () throws -> Void)] = [
            ("Cannot bind after connecting. If needed, bind first, then connect.", { try pair.near.bind(toPort: 0) }),
            ("Cannot connect a socket more than once.", { try pair.near.connect(toHost: "127.0.0.1", onPort: 9) }),
            ("Must bind a socket before joining a multicast group.", { try pair.near.joinMulticastGroup("239.255.42.96") }),
        ]
        for (message, call) in messages {
            let error = #expect(throws: GCDAsyncUdpSocketError.self) { try call() }
            #expect(error?.localizedDescription == message)
        }
        #expect(!pair.near.isClosed() && !pair.near.isConnected() && pair.near.localPort() == 0)
        try pair.near.beginReceiving()
        gate.signal()
        try await pair.atNear.wait(for: "not connected")
        #expect(!pair.near.isClosed())
        try pair.near.connect(toAddress: pair.far.localAddress() ?? Data())
        try await pair.atNear.wait(for: "connected to 127.0.0.1")
        pair.far.send(Data("still receiving".utf8), toAddress: pair.near.localAddress() ?? Data(), withTimeout: -1, tag: 1)
        try await pair.atNear.wait(for: "received still receiving")
    }
}
