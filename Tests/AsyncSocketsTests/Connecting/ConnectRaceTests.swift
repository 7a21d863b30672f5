import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Hosts with several addresses (RFC 8305). A delay of one hour means that the test must not depend on it.
@Suite(.timeLimit(.patient)) struct ConnectRaceTests {
    @Test func d5TheNextAddressIsTriedImmediatelyAfterAFailure() async throws {
        let listener = try RawSocket.listening()
        let refusing = try (0..<5).map { _ in try RawSocket.refusing() }
        let addresses = try refusing.map { try $0.localAddress } + [listener.localAddress]
        let recorder = Recorder()
        let client = AsyncSocket.client(of: addresses, delegate: recorder)
        try client.connectToHost(withTimeout: .patient)
        try await recorder.connected()
        #expect(try client.connectedAddress == listener.localAddress)
        withExtendedLifetime(refusing) {}
    }

    @Test func d5TheNextAddressIsTriedWhileEarlierAttemptsArePending() async throws {
        let silent = try [FullBacklog(), FullBacklog()]
        let listener = try RawSocket.listening()
        let recorder = Recorder()
        let addresses = try silent.map(\.address) + [listener.localAddress]
        let client = AsyncSocket.client(of: addresses, delay: 0.05, delegate: recorder)
        try client.connectToHost()
        try await recorder.connected()
        #expect(try client.connectedAddress == listener.localAddress)
        withExtendedLifetime(silent) {}
    }

    @Test func stepsOfConcurrentConnectionAttemptsAreReportedInOrder() async throws {
        let silent = try FullBacklog()
        let refusing = try RawSocket.refusing()
        let listener = try RawSocket.listening()
        let first = silent.address
        let (second, third) = (try refusing.localAddress, try listener.localAddress)
        let recorder = Recorder(recordsSteps: true)
        // Long enough for a busy machine to report the refusal before the third attempt is due.
        let client = AsyncSocket.client(of: [first, second, third], delay: 2, delegate: recorder)
        try client.connectToHost()
        let steps = await recorder.steps()
        guard case .failed(second, let error) = steps.dropFirst(3).first else {
            Issue.record("\(steps)")
            return
        }
        #expect(error.errno == ECONNREFUSED)
        #expect(
            steps == [
                .resolved([first, second, third]), .trying(first), .trying(second), .failed(second, error), .trying(third),
                .connected(third),
            ])
        withExtendedLifetime((client, silent, refusing)) {}
    }

    @Test func everyAddressThatFailedIsNamed() async throws {
        let refusing = try ["127.0.0.1", "127.0.0.2", "::1"].map { try RawSocket.refusing($0) }
        let recorder = Recorder()
        let client = AsyncSocket.client(of: try refusing.map { try $0.localAddress }, delegate: recorder)
        try client.connectToHost()
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .connectFailed && error.errno == ECONNREFUSED && error.fault == .peer)
        for refusing in refusing { #expect(error.message.contains("\(try refusing.localAddress): connect")) }
        #expect(error.message.contains("host.test"))
        withExtendedLifetime(client) {}
    }

    @Test func aHostWithVeryManyAddressesMakesNoVeryLongMessage() async throws {
        let refusing = try RawSocket.refusing("127.0.0.79")
        let port = try refusing.localPort
        let addresses = try (0..<200).map { try SocketEndpoint.loopback("127.1.\($0 / 250).\($0 % 250 + 1)", port: port) }
        let recorder = Recorder()
        let client = AsyncSocket.client(of: addresses, delegate: recorder)
        try client.connectToHost()
        let error = try #require(try await recorder.disconnected())
        #expect(error.message.contains("and 184 more"))
        #expect(error.message.utf8.count < 2_000)
        withExtendedLifetime((client, refusing)) {}
    }

    @Test func theWinnerLeavesNothingOfTheOthers() async throws {
        let loop = try SocketEventLoop()
        let silent = try [FullBacklog(), FullBacklog(), FullBacklog()]
        let listener = try RawSocket.listening()
        let recorder = Recorder()
        let addresses = try silent.map(\.address) + [listener.localAddress]
        let client = AsyncSocket.client(of: addresses, delay: 0.01, delegate: recorder, loop: loop)
        try client.connectToHost()
        try await recorder.connected()
        #expect(loop.registrationCount == 1)
        client.disconnect()
        #expect(try await recorder.disconnected() == nil)
        try await eventually("the loop is empty") { loop.registrationCount == 0 }
        withExtendedLifetime((client, silent)) {}
    }

    @Test func theTimeoutEndsEveryAttempt() async throws {
        let loop = try SocketEventLoop()
        let silent = try [FullBacklog(), FullBacklog(), FullBacklog()]
        let recorder = Recorder()
        let client = AsyncSocket.client(of: silent.map(\.address), delay: 0.01, delegate: recorder, loop: loop)
        try client.connectToHost(withTimeout: 0.2)
        #expect(try await recorder.disconnected()?.code == .connectTimeout)
        try await eventually("the loop is empty") { loop.registrationCount == 0 }
        withExtendedLifetime((client, silent)) {}
    }

    // MARK: - Families

    @Test(arguments: [SocketEndpoint.Family.ipv4, .ipv6])
    func d2AddressesOfADisabledFamilyAreNotTried(_ disabled: SocketEndpoint.Family) async throws {
        let listeners = try [RawSocket.listening("127.0.0.1"), RawSocket.listening("::1")]
        let addresses = try listeners.map { try $0.localAddress }
        let recorder = Recorder(recordsSteps: true)
        let client = AsyncSocket.client(of: addresses, delegate: recorder)
        // The other family would be tried first.
        client.isIPv4PreferredOverIPv6 = disabled == .ipv4
        if disabled == .ipv4 { client.isIPv4Enabled = false } else { client.isIPv6Enabled = false }
        try client.connectToHost()
        let enabled = try #require(addresses.first { $0.family != disabled })
        #expect(await recorder.steps() == [.resolved([enabled]), .trying(enabled), .connected(enabled)])
        #expect(client.isIPv4 == (disabled == .ipv6) && client.isIPv6 == (disabled == .ipv4))
        withExtendedLifetime(listeners) {}
    }

    @Test(arguments: [false, true])
    func thePreferredFamilyIsTriedFirst(_ prefersIPv4: Bool) async throws {
        let listeners = try [RawSocket.listening("127.0.0.1"), RawSocket.listening("::1")]
        let recorder = Recorder()
        let client = AsyncSocket.client(of: try listeners.map { try $0.localAddress }, delegate: recorder)
        client.isIPv4PreferredOverIPv6 = prefersIPv4
        try client.connectToHost()
        try await recorder.connected()
        #expect(client.isIPv4 == prefersIPv4)
        withExtendedLifetime(listeners) {}
    }

    @Test(arguments: ["::1", "host.test"])
    func d2NoAddressOfAnEnabledFamilyIsAnErrorThatSaysSo(_ host: String) async throws {
        let recorder = Recorder()
        let client = AsyncSocket.client(of: [try .loopback("::1", port: 1)], delegate: recorder)
        client.isIPv6Enabled = false
        try client.connect(toHost: host, onPort: 1, withTimeout: .patient)
        let error = try #require(try await recorder.disconnected())
        #expect(error.code == .noUsableAddress && error.fault == .caller)
        #expect(error.message.contains("IPv6"))
        withExtendedLifetime(client) {}
    }

    @Test func d2AnAddressOfADisabledFamilyAndBothDisabledAreRefusedAtOnce() throws {
        let client = AsyncSocket()
        client.isIPv4Enabled = false
        let address = try SocketEndpoint.loopback(port: 1)
        #expect(throws: AsyncSocketError.self) { try client.connect(toAddress: address) }.map {
            #expect($0.code == .noUsableAddress)
        }
        client.isIPv6Enabled = false
        #expect(throws: AsyncSocketError.self) { try client.connect(toHost: "localhost", onPort: 1) }
            .map { #expect($0.code == .badConfiguration) }
        #expect(client.isDisconnected)
    }

    @Test func localhostConnectsWithEitherFamilyAlone() async throws {
        for host in ["127.0.0.1", "::1"] {
            // A port without a listener in the other family.
            let listener = try RawSocket.listening(on: .loopback(host, port: RawSocket.freePort()))
            let recorder = Recorder()
            let client = AsyncSocket(inlineDelegate: recorder)
            try client.connect(toHost: "localhost", onPort: try listener.localPort, withTimeout: .patient)
            try await recorder.connected()
            #expect(client.connectedHost == host)
        }
    }

    // MARK: - Self-connections

    @Test(arguments: ["127.0.0.1", "::1"])
    func aConnectionToItselfIsRefused(_ host: String) async throws {
        let port = try RawSocket.freePort()
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toHost: host, onPort: port, viaInterface: "lo:\(port)", withTimeout: .patient)
        guard case .disconnected(let error?) = await recorder.next() else {
            Issue.record("connected")
            return
        }
        #expect(error.code == .connectFailed && error.errno == ECONNREFUSED)
        withExtendedLifetime(client) {}
    }
}
