import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Synchronization
import Testing

@testable import AsyncSockets

/// Invalid limits. Calls that can throw reject them, and setters use the nearest valid value.
@Suite(.timeLimit(.patient)) struct LimitValueTests {
    static let values = [Int.min, -1, 0, 1, .max]

    /// A limit that a program sets on an object of the type `Owner`.
    struct Limit<Owner>: CustomTestStringConvertible, Sendable {
        let name: String
        let valid: ClosedRange<Int>
        let set: @Sendable (Owner, Int) -> Void
        let get: @Sendable (Owner) -> Int?

        init(_ path: any ReferenceWritableKeyPath<Owner, Int> & Sendable, _ name: String, _ valid: ClosedRange<Int>) {
            (self.name, self.valid) = (name, valid)
            set = { $0[keyPath: path] = $1 }
            get = { $0[keyPath: path] }
        }

        init(_ path: any ReferenceWritableKeyPath<Owner, Int?> & Sendable, _ name: String, _ valid: ClosedRange<Int>) {
            (self.name, self.valid) = (name, valid)
            set = { $0[keyPath: path] = $1 }
            get = { $0[keyPath: path] }
        }

        var testDescription: String { name }

        func expect(_ value: Int, on owner: Owner) {
            set(owner, value)
            #expect(get(owner) == min(max(value, valid.lowerBound), valid.upperBound), "\(name) = \(value)")
        }
    }

    static let ofStreams: [Limit<AsyncSocket>] = [
        Limit(\.maximumConnections, "maximumConnections", 1...(.max)),
        Limit(\.maximumPendingWriteBytes, "maximumPendingWriteBytes", 0...(.max)),
        Limit(\.writeHighWaterMark, "writeHighWaterMark", 1...(.max)),
    ]

    static let ofListeners: [Limit<SocketListener>] = [
        Limit(\.maximumConnections, "maximumConnections", 1...(.max)),
        Limit(\.maximumHandshakes, "maximumHandshakes", 1...(.max)),
    ]

    static let ofDatagrams: [Limit<AsyncUDPSocket>] = [
        Limit(\.maximumReceiveSize, "maximumReceiveSize", 1...65_527),
        Limit(\.maximumPendingReceiveBytes, "maximumPendingReceiveBytes", 0...(.max)),
        Limit(\.maximumPendingSendBytes, "maximumPendingSendBytes", 0...(.max)),
        Limit(\.sendHighWaterMark, "sendHighWaterMark", 1...(.max)),
        Limit(\.maximumDatagramSize, "maximumDatagramSize", 256...65_507),
    ]

    static let ofPeers: [Limit<DatagramListener>] = [
        Limit(\.maximumPeers, "maximumPeers", 1...(.max)),
        Limit(\.maximumHandshakes, "maximumHandshakes", 1...(.max)),
        Limit(\.maximumTotalPendingReceiveBytes, "maximumTotalPendingReceiveBytes", 65_536...(.max)),
    ]

    /// The limit is set before the socket is used and while it is in use.
    @Test(arguments: ofStreams, values) func invalidLimitsOfStreamSocketsAreClamped(_ limit: Limit<AsyncSocket>, _ value: Int)
        async throws
    {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", configure: { limit.expect(value, on: $0) })
        try await serving(listener, { try await $0.echo() }) { _ in
            let client = AsyncSocket()
            limit.expect(value, on: client)
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            for _ in 0..<2 {
                try await client.write("hello")
                #expect(try await client.read(exactly: 5) == Data("hello"))
                limit.expect(value, on: client)
            }
        }
    }

    @Test(arguments: ofListeners, values) func invalidLimitsOfListenersAreClamped(_ limit: Limit<SocketListener>, _ value: Int)
        async throws
    {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server())
        limit.expect(value, on: listener)
        try await serving(listener, { try await $0.echo() }) { _ in
            for _ in 0..<2 {
                try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { client in
                    try await client.startTLS(settings: .ofTests())
                    try await client.write("hello")
                    #expect(try await client.read(exactly: 5) == Data("hello"))
                }
                limit.expect(value, on: listener)
            }
        }
    }

    @Test(arguments: ofDatagrams, values) func invalidLimitsOfUDPSocketsAreClamped(_ limit: Limit<AsyncUDPSocket>, _ value: Int)
        async throws
    {
        let (one, other) = (AsyncUDPSocket(), try AsyncUDPSocket.bound("127.0.0.1"))
        limit.expect(value, on: one)
        try one.bind(toAddress: .loopback())
        for _ in 0..<2 {
            try await one.send(Data("x"), to: other.address)
            #expect(try await other.receive().data == Data("x"))
            try await other.send(Data("y"), to: one.address)
            #expect(try await one.receive().data == Data("y"))
            limit.expect(value, on: one)
        }
    }

    @Test func theReserveOfMailboxesFollowsTheLimitOfPeers() async throws {
        let listener = try DatagramListener(address: .loopback())
        listener.maximumPeers = 5
        #expect(listener.hub.mailboxes.mailboxLimit.load(ordering: .relaxed) == 5)
        await listener.close()
    }

    @Test(arguments: ofPeers, values) func invalidLimitsOfDatagramListenersAreClamped(
        _ limit: Limit<DatagramListener>, _ value: Int
    ) async throws {
        let listener = try DatagramListener(address: .loopback(), dtls: TestCertificates.server(), idleTimeout: .patient)
        limit.expect(value, on: listener)
        let running = Task {
            try await listener.run { socket in
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
        for _ in 0..<2 {
            let client = AsyncUDPSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            try await client.startDTLS(settings: TestCertificates.client())
            try await client.send(Data("hello"))
            #expect(try await client.receive().data == Data("hello"))
            client.disconnect()
            limit.expect(value, on: listener)
            try await eventually("the peer has left") { listener.snapshot.openCount == 0 }
        }
        await listener.close(timeout: .zero)
        try await running.value
    }

    @Test(arguments: values) func initializersOfListenersThrow(_ value: Int) throws {
        let makings: [(name: String, make: () throws -> Any)] = [
            ("maximumConnections", { try SocketListener(port: 0, maximumConnections: value) }),
            ("maximumPeers", { try DatagramListener(port: 0, maximumPeers: value) }),
        ]
        for (name, make) in makings {
            if value >= 1 {
                _ = try make()
            } else {
                let error = #expect(throws: AsyncSocketError.self) { _ = try make() }
                #expect(error?.code == .badParameter)
                #expect(error?.message == "\(name) must be at least 1, but is \(value)")
            }
        }
    }

    @Test(arguments: values) func settingsAreCheckedWhenTheyAreUsed(_ value: Int) throws {
        let paths: [(WritableKeyPath<TLSServerSettings, Int>, ClosedRange<Int>)] = [
            (\.maximumCertificateChainBytes, 1024...1_048_576), (\.maximumCertificateChainLength, 1...100),
        ]
        for (path, valid) in paths {
            var settings = try TestCertificates.server()
            settings[keyPath: path] = value
            #expect(settings[keyPath: path] == value)
            if valid.contains(value) {
                _ = try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
            } else {
                let error = #expect(throws: AsyncSocketError.self) {
                    try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
                }
                #expect(error?.code == .tls && error?.message.contains("\(value)") == true)
            }
        }
    }

    @Test(arguments: values) func initializersThatCannotThrowTakeTheNearestValue(_ value: Int) {
        let rate = SourceRateLimit.Rate(perSecond: Double(value), burst: value)
        #expect(rate.burst == max(value, 1))
        #expect(rate.perSecond == min(max(Double(value), 0.000_001), 1_000_000_000))
        #expect(SourceRateLimit(perSource: rate, maximumSources: value).maximumSources == min(max(value, 1), 1 << 20))
    }
}
