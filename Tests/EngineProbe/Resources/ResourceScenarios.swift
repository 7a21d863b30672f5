internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Foundation
internal import SocketBuffers
internal import SocketCore
internal import SocketTestSupport

/// Uses of the library that must release all resources, with orderly and abrupt closes.
enum ResourceScenarios {
    struct Scenario: Sendable {
        /// The objects that all rounds share.
        let base: any Sendable
        let round: ResourceProbe.Round
    }

    static func named(_ name: String) throws -> Scenario {
        switch name {
        case "streams": return Scenario(base: (), round: { _ in try await streams(nil) })
        case "tls":
            let certificates = try Certificates()
            return Scenario(base: (), round: { _ in try await streams(certificates) })
        case "datagrams": return Scenario(base: (), round: { _ in try await datagrams() })
        case "dtls": return try dtls(Certificates())
        case "peers": return try peers()
        case "strangers": return try strangers(Certificates())
        default: throw ProbeFailure(description: "there is no scenario \(name)")
        }
    }

    struct Certificates: Sendable {
        let client: TLSClientSettings
        let server: TLSServerSettings
        /// Client settings with other trust roots.
        let stranger: TLSClientSettings

        init() throws {
            let (authority, other) = (try CertificateAuthority(), try CertificateAuthority())
            var (client, stranger) = (
                TLSSettings.client(serverName: "localhost").patient, TLSClientSettings.client(serverName: "localhost")
            )
            (client.trustRoots, stranger.trustRoots) = (try authority.roots, try other.roots)
            (self.client, self.stranger) = (client, stranger.patient)
            server = TLSSettings.server(identity: try authority.issue(.server(names: ["localhost"])).identity()).patient
        }
    }

    // MARK: - Streams

    /// A listener, and clients that close in different ways.
    private static func streams(_ certificates: Certificates?) async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: certificates?.server)
        let running = Task { try await listener.run(onError: { _, _ in }) { try await echo($0) } }
        let port = listener.localPort
        for count in [10, 200_000] {
            let client = try await connected(to: port, certificates?.client)
            let text = [UInt8](repeating: 120, count: count)
            async let writing: Void = client.write(text)
            _ = try await client.read(exactly: count)
            try await writing
            try await client.close()
        }
        // A line that is longer than a block in the pool.
        let long = try await connected(to: port, certificates?.client)
        async let writing: Void = long.write([UInt8](repeating: 120, count: 200_000) + [10])
        _ = try await long.readLine(maxLength: 300_000)
        try await writing
        try await long.close()
        // Unread bytes, a close during a read, a cancelled read, and a reset.
        let unread = try await connected(to: port, certificates?.client)
        try await unread.write([UInt8](repeating: 120, count: 100_000))
        _ = try await unread.read(exactly: 1)
        unread.disconnect()
        let reading = try await connected(to: port, certificates?.client)
        let read = Task.immediate { try await reading.readLine() }
        try await reading.write("no line")
        read.cancel()
        _ = await read.result
        reading.disconnect()
        try reset(port)
        if let certificates {
            try await expectRefusal { _ = try await connected(to: port, certificates.stranger) }
            var asking = certificates.client
            asking.trustEvaluation = .delegate
            let refusing = AsyncSocket()
            try await refusing.connect(to: "127.0.0.1", port: port)
            try await expectRefusal { try await refusing.startTLS(settings: asking) { _ in false } }
            guard !refusing.isConnected else { throw ProbeFailure(description: "open after a refusal") }
        }
        await listener.close(timeout: .zero)
        try await running.value
    }

    /// Expects `body` to throw because the TLS peer is not trusted.
    private static func expectRefusal(_ body: () async throws -> Void) async throws {
        do { try await body() } catch let error as AsyncSocketError where error.code == .tls { return }
        throw ProbeFailure(description: "TLS with a peer that is not trusted")
    }

    /// A peer that sends part of a message and then resets the connection.
    private static func reset(_ port: UInt16) throws {
        let raw = try RawSocket.connected(to: .loopback(port: port))
        try raw.send([22, 3, 1, 2, 0, 1, 0, 1])
        raw.resetWhenClosed()
    }

    private static func connected(to port: UInt16, _ settings: TLSClientSettings?) async throws -> AsyncSocket {
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: port)
        if let settings { try await socket.startTLS(settings: settings) }
        return socket
    }

    private nonisolated(nonsending) static func echo(_ socket: AsyncSocket) async throws {
        for try await bytes in socket.chunks { try await socket.write(bytes) }
    }

    // MARK: - Datagrams

    private static func datagrams() async throws {
        let (one, other) = (AsyncUDPSocket(), AsyncUDPSocket())
        for socket in [one, other] { try socket.bind(toAddress: .loopback()) }
        guard let address = other.localAddress else { throw ProbeFailure(description: "no address") }
        one.setSendFilter { _, _, tag in tag >= 0 }
        for number in 0..<200 { try await one.send(Data([UInt8(number)]), to: address) }
        for _ in 0..<150 { _ = try await other.receive() }
        one.setSendFilter(nil)
        try await one.connect(to: address)
        try await one.send(Data(count: 9_000))
        let receiving = Task.immediate { try await one.receive() }
        receiving.cancel()
        _ = await receiving.result
        let failing = AsyncUDPSocket()
        _ = try? await failing.connect(to: .loopback("255.255.255.255", port: 9))
        one.disconnect()
        // 50 datagrams are still in the kernel.
        other.disconnect()
    }

    // MARK: - DTLS

    /// A DTLS listener and short-lived peers. The listener measures the path to each peer.
    private static func dtls(_ certificates: Certificates) throws -> Scenario {
        let listener = try DatagramListener(address: .loopback(), dtls: certificates.server, idleTimeout: .patient)
        let running = Task {
            try await listener.run(onError: { _, _ in }) { socket in
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
        return Scenario(base: running) { _ in
            for _ in 0..<3 {
                let client = AsyncUDPSocket()
                try await client.connect(to: "127.0.0.1", port: listener.localPort)
                try await client.startDTLS(settings: certificates.client)
                for size in [1, 1000, 8000] {
                    try await client.send(Data(count: size))
                    _ = try await client.receive()
                }
                client.disconnect()
            }
            let refusing = AsyncUDPSocket()
            try await refusing.connect(to: "127.0.0.1", port: listener.localPort)
            _ = try? await refusing.startDTLS(settings: certificates.stranger)
            try await eventually("the peers have closed") { listener.snapshot.openCount == 0 }
        }
    }

    /// A listener without DTLS, which accepts each source address as a peer.
    private static func peers() throws -> Scenario {
        let listener = try DatagramListener(address: .loopback(), idleTimeout: .patient)
        let running = Task {
            try await listener.run { socket in try await socket.send(socket.receive().data) }
        }
        return Scenario(base: running) { number in
            for source in 0..<25 {
                let peer = AsyncUDPSocket()
                try peer.bind(toAddress: address(number, source))
                try await peer.send(Data([1, 2, 3]), to: "127.0.0.1", port: listener.localPort)
                _ = try await peer.receive()
                peer.disconnect()
            }
            try await eventually("the peers have closed") { listener.snapshot.openCount == 0 }
        }
    }

    /// A different loopback address for each round and source.
    private static func address(_ round: Int, _ source: Int) throws -> SocketEndpoint {
        try .loopback("127.\(1 + round / 250).\(round % 250).\(source + 1)")
    }

    /// A DTLS listener, and datagrams from made-up source addresses that do not start a handshake.
    private static func strangers(_ certificates: Certificates) throws -> Scenario {
        let listener = try DatagramListener(
            address: .loopback(), dtls: certificates.server,
            configure: {
                $0.rateLimit = SourceRateLimit(perSource: .init(perSecond: 0.001, burst: 2), maximumSources: 64)
            })
        let running = Task { try await listener.run { _ in } }
        let client = AsyncUDPSocket()
        return Scenario(base: (running, client)) { number in
            let seen = { listener.snapshot.refused.invalid + listener.snapshot.refused.byRate }
            let before = seen()
            for source in 0..<25 {
                let stranger = AsyncUDPSocket()
                try stranger.bind(toAddress: address(number, source))
                for datagram in [[UInt8](repeating: 7, count: 20), [23, 254, 253, 0, 1]] {
                    try await stranger.send(Data(datagram), to: "127.0.0.1", port: listener.localPort)
                }
                stranger.disconnect()
            }
            try await eventually("all were received") { seen() >= before + 50 }
        }
    }
}
