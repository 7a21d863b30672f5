import AsyncSocketsTesting
import Foundation
import Glibc
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Binding, connecting and adopting UDP sockets.
@Suite(.timeLimit(.patient)) struct DatagramConnectTests {
    // MARK: - Binding

    @Test func bothVersionsOfIPShareAPort() async throws {
        let socket = AsyncUDPSocket()
        try socket.bind(toPort: 0)
        #expect(socket.localAddresses.map(\.host) == ["0.0.0.0", "::"])
        #expect(Set(socket.localAddresses.map(\.port)).count == 1 && socket.localPort != 0)
        #expect(socket.isIPv4 && socket.isIPv6)
        for host in ["127.0.0.1", "::1"] {
            let client = try AsyncUDPSocket.bound(host)
            try await client.send(Data([1]), to: host, port: socket.localPort)
            #expect(try await socket.receive().sender == client.address)
        }
    }

    @Test func aSocketHasTheFamiliesThatAreEnabled() throws {
        let socket = AsyncUDPSocket()
        socket.isIPv6Enabled = false
        try socket.bind(toPort: 0)
        #expect(socket.localAddresses.map(\.host) == ["0.0.0.0"])
        let other = AsyncUDPSocket()
        other.isIPv4Enabled = false
        try other.bind(toPort: socket.localPort, interface: "lo")
        #expect(other.localAddresses.map(\.host) == ["::1"])
        let none = AsyncUDPSocket()
        (none.isIPv4Enabled, none.isIPv6Enabled) = (false, false)
        #expect(#expect(throws: AsyncSocketError.self) { try none.bind(toPort: 0) }?.code == .badConfiguration)
        let wrong = #expect(throws: AsyncSocketError.self) { try AsyncUDPSocket().bind(toPort: 0, interface: "nowhere0") }
        #expect(wrong?.code == .badParameter)
    }

    @Test func aPortThatIsTakenIsAnErrorAndAnotherMayBeTried() throws {
        let first = try AsyncUDPSocket.bound()
        let socket = AsyncUDPSocket()
        let error = #expect(throws: AsyncSocketError.self) { try socket.bind(toAddress: first.address) }
        #expect(error?.errno == EADDRINUSE)
        #expect(try error?.message.contains(first.address.description) == true)
        try socket.bind(toAddress: .loopback())
        let again = #expect(throws: AsyncSocketError.self) { try socket.bind(toPort: 0) }
        #expect(again?.code == .badConfiguration)
    }

    @Test func socketsThatReuseAPortShareItsDatagrams() async throws {
        let sockets = (0..<2).map { _ in AsyncUDPSocket() }
        var address = try SocketEndpoint.loopback()
        for socket in sockets {
            try socket.setOption(.reusePort, to: true)
            try socket.bind(toAddress: address)
            address = try socket.address
        }
        #expect(try sockets[0].option(.reusePort))
        let total = 200
        let counts = sockets.map { _ in Locked(0) }
        let receiving = zip(sockets, counts).map { socket, count in
            Task.immediate { for try await _ in socket.datagrams { count.withLock { $0 += 1 } } }
        }
        for _ in 0..<total { try await AsyncUDPSocket().send(Data([1]), to: address) }
        try await eventually("all have arrived") { counts.reduce(0) { $0 + $1.withLock { $0 } } == total }
        #expect(counts.allSatisfy { $0.withLock { $0 } > 0 })
        for socket in sockets { socket.disconnect() }
        for task in receiving { try await task.value }
    }

    // MARK: - Connecting

    @Test func aConnectedSocketHearsItsPeerAlone() async throws {
        let (peer, stranger) = (try AsyncUDPSocket.bound(), try AsyncUDPSocket.bound())
        let socket = try AsyncUDPSocket.bound()
        let address = try socket.address
        // An earlier datagram that the kernel has buffered.
        try await stranger.send(Data([0]), to: address)
        try await socket.connect(to: peer.address)
        #expect(try socket.isConnected && socket.connectedAddress == peer.address && socket.address == address)
        try await stranger.send(Data([1]), to: address)
        try await peer.send(Data([2]), to: address)
        #expect(try await socket.receive().data == Data([2]))
        let refused = await #expect(throws: AsyncSocketError.self) { try await socket.send(Data(), to: stranger.address) }
        #expect(refused?.code == .badConfiguration)
        let twice = await #expect(throws: AsyncSocketError.self) { try await socket.connect(to: stranger.address) }
        #expect(twice?.code == .badConfiguration)

        socket.dissolveAssociation()
        // Takes effect immediately, unless the loop is still working on the socket.
        try await eventually("the peer is forgotten") { !socket.isConnected }
        #expect(try socket.address == address)
        try await stranger.send(Data([3]), to: address)
        #expect(try await socket.receive().data == Data([3]))
        try await socket.connect(to: stranger.address)
        try await socket.send(Data([4]))
        #expect(try await stranger.receive().data == Data([4]))
    }

    @Test func allAddressesOfAHostAreTried() async throws {
        let peer = try AsyncUDPSocket.bound()
        let good = try peer.address
        // A link-local address without a scope, and broadcast without the option for it.
        let bad = try ["fe80::1", "255.255.255.255"].map { try SocketEndpoint.loopback($0, port: peer.localPort) }
        let socket = AsyncUDPSocket()
        socket.resolver = Resolver(concurrency: 1) { _ in .success(bad + [good]) }
        try await socket.connect(to: "some.example", port: peer.localPort)
        #expect(socket.connectedAddress == good && socket.isIPv4 && !socket.isIPv6)
        let lost = AsyncUDPSocket()
        lost.resolver = Resolver(concurrency: 1) { _ in .success(bad) }
        let error = await #expect(throws: AsyncSocketError.self) { try await lost.connect(to: "some.example", port: 9) }
        #expect(error?.code == .connectFailed && error?.message.contains("fe80::1") == true)
        #expect(!lost.isConnected)
        try await lost.connect(to: good)
        #expect(lost.isConnected)
    }

    @Test func aConnectThatIsLateOrCancelledLeavesTheSocketFree() async throws {
        let mayAnswer = DispatchSemaphore(value: 0)
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        socket.resolver = Resolver(concurrency: 1) {
            mayAnswer.wait()
            return .failure(ResolveError($0, code: EAI_NONAME))
        }
        let late = await #expect(throws: AsyncSocketError.self) {
            try await socket.connect(to: "some.example", port: 9, timeout: .milliseconds(1))
        }
        #expect(late?.code == .connectTimeout)
        let task = Task.immediate { try await socket.connect(to: "some.example", port: 9) }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        try socket.connect(toHost: "some.example", onPort: 9, withTimeout: 0.001)
        socket.send(Data([1]), withTimeout: -1, tag: 3)
        let error = try await recorder.first { if case .notConnected(let error) = $0 { error } else { nil } }
        #expect(error.code == .connectTimeout)
        #expect(try await recorder.notSent().tag == 3)
        mayAnswer.signal()
        try await socket.connect(to: .loopback(port: 9))
        #expect(socket.isConnected)
    }

    // MARK: - Adopted sockets

    @Test func aDescriptorIsAdopted() async throws {
        let peer = try AsyncUDPSocket.bound()
        let party = try DatagramParty()
        let socket = AsyncUDPSocket()
        try socket.adopt(dup(party.descriptor.socket.rawValue))
        #expect(try socket.address == party.address)
        try await peer.send(Data([1]), to: socket.address)
        #expect(try await socket.receive().data == Data([1]))
        try party.descriptor.connect(to: peer.address)
        let connected = AsyncUDPSocket()
        try connected.adopt(dup(party.descriptor.socket.rawValue))
        #expect(try connected.connectedAddress == peer.address)
        try await connected.send(Data([2]))
        #expect(try await peer.receive().data == Data([2]))
    }

    @Test func anotherDescriptorIsLeftAlone() throws {
        let listener = try RawSocket.listening()
        let number = listener.duplicate()
        defer { close(number) }
        let error = #expect(throws: AsyncSocketError.self) { try AsyncUDPSocket().adopt(number) }
        #expect(error?.code == .badParameter && error?.errno == ESOCKTNOSUPPORT)
        #expect(fcntl(number, F_GETFD) >= 0)
        #expect(#expect(throws: AsyncSocketError.self) { try AsyncUDPSocket().adopt(-1) }?.errno == EBADF)
    }

    @Test func aSocketOfAServiceManagerIsAdoptedOnce() async throws {
        let party = try DatagramParty()
        let inherited = InheritedDescriptor(dup(party.descriptor.socket.rawValue), name: "dns.socket")
        let socket = AsyncUDPSocket()
        try socket.adopt(inherited)
        try await AsyncUDPSocket().send(Data([1]), to: socket.address)
        #expect(try await socket.receive().data == Data([1]))
        let error = #expect(throws: AsyncSocketError.self) { try AsyncUDPSocket().adopt(inherited) }
        #expect(error?.errno == EBADF && error?.message.contains("dns.socket") == true)
    }

    // MARK: - Options and facts

    @Test func optionsAreSetBeforeAndAfterBinding() throws {
        let socket = AsyncUDPSocket()
        try socket.setOption(.receiveBufferSize, to: 100_000)
        #expect(try socket.option(.receiveBufferSize) == 100_000)
        try socket.bind(toPort: 0)
        // The kernel doubles the value (socket(7)).
        #expect(try socket.option(.receiveBufferSize) == 200_000)
        #expect(try !socket.option(.broadcast))
        try socket.setOption(.broadcast, to: true)
        try socket.setOption(.multicastTTL, to: 7)
        #expect(try socket.option(.broadcast) && socket.option(.multicastTTL) == 7)
        let error = #expect(throws: AsyncSocketError.self) { try socket.setOption(.noDelay, to: true) }
        #expect(error?.code == .badParameter)
    }

    /// Descriptors opened later, such as one for a group, get only values that the kernel accepted.
    @Test func aRefusedOptionIsForgotten() throws {
        let socket = AsyncUDPSocket()
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        try socket.setOption(.ipTTL, to: 7)
        let error = #expect(throws: AsyncSocketError.self) { try socket.setOption(.ipTTL, to: 300) }
        #expect(error?.errno == EINVAL)
        try socket.joinMulticastGroup("239.255.7.80", onInterface: "lo")
        #expect(try socket.option(.ipTTL) == 7)
    }

    @Test func factsStayAfterTheEnd() async throws {
        let peer = try AsyncUDPSocket.bound()
        let recorder = DatagramRecorder()
        let socket = AsyncUDPSocket(inlineDelegate: recorder)
        try await socket.connect(to: peer.address)
        let local = try socket.address
        socket.disconnect()
        _ = try await recorder.closed()
        #expect(try socket.address == local && socket.connectedAddress == peer.address && !socket.isConnected)
        #expect(socket.dropped.overflowed == 0)
    }
}
