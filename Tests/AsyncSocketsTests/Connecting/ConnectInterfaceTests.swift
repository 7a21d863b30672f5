import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Connections from a local interface or address given by the caller.
@Suite(.timeLimit(.patient)) struct ConnectInterfaceTests {
    @Test(arguments: [
        ("127.0.0.5", "127.0.0.1", "127.0.0.5"), ("lo", "127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1", "127.0.0.1"),
        ("lo", "::1", "::1"), ("::1", "::1", "::1"), ("[::1]", "::1", "::1"), ("loopback", "::1", "::1"),
        ("", "127.0.0.1", "127.0.0.1"),
    ])
    func theConnectionUsesTheAddressOfTheGivenInterface(_ interface: String, _ host: String, _ from: String) async throws {
        let listener = try RawSocket.listening(host)
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(
            toHost: host, onPort: try listener.localPort, viaInterface: interface, withTimeout: .patient)
        try await recorder.connected()
        let peer = try listener.accepted().peerAddress
        #expect(peer.host == from)
        #expect(peer == client.localAddress)
    }

    @Test(arguments: [
        ("127.0.0.6:", "127.0.0.1", "127.0.0.6"), ("[::1]:", "::1", "::1"), (":", "127.0.0.1", "127.0.0.1"),
        ("lo:", "::1", "::1"),
    ])
    func theLocalPortCanBeChosen(_ interface: String, _ host: String, _ from: String) async throws {
        let listener = try RawSocket.listening(host)
        let port = try RawSocket.freePort()
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toAddress: listener.localAddress, viaInterface: "\(interface)\(port)", withTimeout: .patient)
        try await recorder.connected()
        #expect(client.localPort == port && client.localHost == from)
        #expect(try listener.accepted().peerAddress == client.localAddress)
    }

    @Test func attemptsBesideEachOtherShareOnePortOfOurs() async throws {
        let silent = try FullBacklog()
        let listeners = try [RawSocket.listening(), RawSocket.listening("::1")]
        let port = try RawSocket.freePort()
        let recorder = Recorder()
        let addresses = try [silent.address, listeners[1].localAddress]
        let client = AsyncSocket.client(of: addresses, delay: 0.05, delegate: recorder)
        try client.connect(toHost: "host.test", onPort: 1, viaInterface: ":\(port)", withTimeout: .patient)
        try await recorder.connected()
        #expect(client.localPort == port)
        withExtendedLifetime((client, silent, listeners)) {}
    }

    @Test func aHostInAFamilyThatTheInterfaceLacksIsAnErrorThatSaysSo() async throws {
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toHost: "::1", onPort: 1, viaInterface: "127.0.0.1", withTimeout: .patient)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .noUsableAddress && error.fault == .caller)
        #expect(error.message.contains("127.0.0.1") && error.message.contains("IPv6"))
        withExtendedLifetime(client) {}
    }

    @Test func anAddressThatIsNotOursFailsAsASystemError() async throws {
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toHost: "127.0.0.1", onPort: 1, viaInterface: "198.51.100.1", withTimeout: .patient)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .connectFailed && error.errno == EADDRNOTAVAIL && error.fault == .system)
        withExtendedLifetime(client) {}
    }

    @Test func whatIsNoInterfaceIsRefusedAtOnce() throws {
        let client = AsyncSocket()
        for interface in ["nowhere0", "lo:port", "[::1", "lo:"] {
            let error = #expect(throws: AsyncSocketError.self) {
                try client.connect(toHost: "localhost", onPort: 1, viaInterface: interface)
            }
            #expect(error?.code == .badParameter)
        }
        client.isIPv4Enabled = false
        let error = #expect(throws: AsyncSocketError.self) {
            try client.connect(toHost: "localhost", onPort: 1, viaInterface: "127.0.0.1")
        }
        #expect(error?.code == .noUsableAddress)
        #expect(client.isDisconnected)
    }

    // MARK: - Listening

    @Test func aListenerOnAnInterfaceHasAllItsAddresses() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "lo", port: 0)
        var clients: [AsyncSocket] = []
        for host in ["127.0.0.1", "::1"] {
            let recorder = Recorder()
            let client = AsyncSocket(inlineDelegate: recorder)
            clients.append(client)
            try client.connect(toHost: host, onPort: listener.localPort, withTimeout: .patient)
            try await recorder.connected()
            _ = try await atListener.accepted()
        }
        #expect(clients.allSatisfy { $0.isConnected })
        withExtendedLifetime(listener) {}
    }

    @Test func aListenerLeavesOutDisabledFamiliesAndUnknownInterfaces() throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.isIPv4Enabled = false
        try listener.accept(onInterface: "localhost", port: 0)
        #expect(listener.localHost == "::1")
        let other = AsyncSocket(inlineDelegate: recorder)
        other.isIPv6Enabled = false
        #expect(throws: AsyncSocketError.self) { try other.accept(onInterface: "::1", port: 0) }
            .map { #expect($0.code == .noUsableAddress) }
        #expect(throws: AsyncSocketError.self) { try other.accept(onInterface: "nowhere0", port: 0) }
            .map { #expect($0.code == .badParameter) }
        #expect(other.isDisconnected)
        withExtendedLifetime(recorder) {}
    }

    @Test func aListenersPortMayStandBehindItsInterface() throws {
        let port = try RawSocket.freePort()
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onInterface: "127.0.0.10:\(port)", port: 0)
        #expect(listener.localPort == port && listener.localHost == "127.0.0.10")
        withExtendedLifetime(recorder) {}
    }
}
