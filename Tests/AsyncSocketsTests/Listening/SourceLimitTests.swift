import AsyncSocketsTesting
import Foundation
import Logging
import SocketBuffers
import SocketCore
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// One source cannot shut out other sources.
@Suite(.timeLimit(.patient)) struct SourceLimitTests {
    private static let log = "source limits"

    private func listener(
        isSecure: Bool = false, _ proxyProtocol: SocketListener.ProxyProtocol? = nil, maximumConnections: Int = 10_000
    ) throws -> SocketListener {
        try SocketListener(
            port: 0, interface: "127.0.0.1", tls: isSecure ? TestCertificates.server() : nil, proxyProtocol: proxyProtocol,
            maximumConnections: maximumConnections, configure: { $0.logger = LogRecorder.logger(of: Self.log) })
    }

    /// Converses from another address than the silent connections.
    private func expectService(_ listener: SocketListener, from host: String, isSecure: Bool = false) async throws {
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort, interface: host)
        if isSecure { try await client.startTLS(settings: .ofTests()) }
        try await client.write("hello\n")
        #expect(try await client.readLine(timeout: .patient) == "hello")
        try await client.close()
    }

    @Test func theDefaultIsFourFifths() throws {
        let listener = try listener()
        #expect(listener.maximumConnectionsPerSource == 8_000)
        listener.maximumConnections = 100
        #expect(listener.maximumConnectionsPerSource == 80)
        listener.maximumConnectionsPerSource = 0
        #expect(listener.maximumConnectionsPerSource == 1)
        let socket = AsyncSocket()
        #expect(socket.maximumConnectionsPerSource == 8_000)
        socket.maximumConnections = 1
        #expect(socket.maximumConnectionsPerSource == 1)
        socket.maximumConnections = .max
        #expect(socket.maximumConnectionsPerSource > 1 << 60)
        socket.maximumConnectionsPerSource = 3
        #expect(socket.maximumConnectionsPerSource == 3)
    }

    @Test func aSourceDoesNotTakeAllConnections() async throws {
        let listener = try listener(maximumConnections: 10)
        let address = try #require(listener.localAddress)
        try await serving(listener, { try await $0.echo() }) { _ in
            var silent: [RawSocket?] = try (0..<8).map { _ in try .connected(to: address) }
            try await eventually("they are open") { listener.reception.quota.openCount == 8 }
            for _ in 0..<30 {
                #expect(throws: LoopbackError.self) { try RawSocket.connected(to: address).receive() }
            }
            #expect(listener.snapshot.refused.bySource == 30)
            // The accepting loop takes a permit before it looks for a connection.
            try await eventually("only the silent ones are open") { listener.reception.quota.openCount == 8 }
            try await expectService(listener, from: "127.0.0.2")
            // Its places are free again when its connections close.
            silent[0] = nil
            try await eventually("one has closed") { listener.reception.quota.openCount == 7 }
            try await expectService(listener, from: "127.0.0.1")
        }
        #expect(listener.reception.quota.sourceCount == 0)
        let warnings = LogRecorder.warnings(of: Self.log).filter { $0.metadata["listener"] == "\(address)" }
        #expect(warnings.compactMap { $0.metadata["limit"] } == ["8"])
    }

    @Test func theDelegateOfAListenerReceivesNoConnectionAboveTheLimit() async throws {
        let observer = ObservationRecorder()
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.observer = observer
        listener.maximumConnectionsPerSource = 2
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        let silent = try (0..<2).map { _ in try RawSocket.connected(to: address) }
        for _ in 0..<2 { _ = try await recorder.accepted() }
        #expect(throws: LoopbackError.self) { try RawSocket.connected(to: address).receive() }
        var codes: [AsyncSocketError.Code] = []
        while codes.isEmpty, let observed = await observer.next() {
            if case .lost(_, .failed(let error)) = observed { codes.append(error.code) }
        }
        #expect(codes == [.tooManyConnections])
        listener.disconnect()
        withExtendedLifetime(silent) {}
    }

    /// Two sources hold all places. New connections replace the silent connections of the larger source, the
    /// oldest first. Connections that have carried data are kept.
    @Test func silentConnectionsGiveWay() async throws {
        let listener = try listener(maximumConnections: 20)
        let (address, quota) = (try #require(listener.localAddress), listener.reception.quota)
        let errors = Locked<[AsyncSocketError.Code?]>([])
        let note: @Sendable (any Error, AsyncSocket) -> Void = { error, _ in
            errors.withLock { $0.append((error as? AsyncSocketError)?.code) }
        }
        try await serving(listener, onError: note, { try await $0.echo() }) { _ in
            // Half of the places.
            let active = try (0..<10).map { _ in
                let connection = try RawSocket.connected(to: address, from: "127.0.0.9")
                try connection.send("first\n")
                #expect(try connection.receive(atLeast: 6) == "first\n")
                return connection
            }
            // The accepting loop takes a permit before it looks for a connection, so the tenth may count.
            let first = quota.unprovenCount
            #expect(first <= 1)
            var many: [RawSocket] = []
            for count in 1...8 {
                many.append(try RawSocket.connected(to: address))
                try await eventually("it has a socket") { quota.unprovenCount == first + count }
            }
            let few = try (0..<2).map { _ in try RawSocket.connected(to: address, from: "127.0.0.2") }
            try await eventually("all places are taken") { quota.unprovenCount == first + 10 }
            var late: [RawSocket] = []
            for count in 1...5 {
                late.append(try RawSocket.connected(to: address, from: "127.0.0.\(10 + count)"))
                try late[count - 1].send("late\n")
                #expect(try late[count - 1].receive(atLeast: 5) == "late\n")
                #expect(listener.snapshot.refused.byConnections == count)
                #expect(throws: LoopbackError.self) { try many[count - 1].receive() }
            }
            for connection in active + many[5...] + few + late {
                try connection.send("still\n")
                #expect(try connection.receive(atLeast: 6) == "still\n")
            }
            try await eventually("the errors are reported") { errors.withLock { $0.count } == 5 }
            #expect(errors.withLock { $0.allSatisfy { $0 == .tooManyConnections } })
            // Each connection has carried data, so the next one waits for a place.
            let next = try RawSocket.connected(to: address, from: "127.0.0.3")
            try next.send("next\n")
            try await eventually("each connection is found to be proven") { quota.unprovenCount == 0 }
            late.removeLast()
            #expect(try next.receive(atLeast: 5) == "next\n")
            #expect(listener.snapshot.refused.byConnections == 5)
        }
        #expect(listener.reception.quota.sourceCount == 0)
    }

    /// With TLS, a connection is unproven until the handshake is complete, whatever it sends.
    @Test(arguments: [false, true]) func unfinishedHandshakesGiveWay(_ isUpgrade: Bool) async throws {
        let listener = try listener(isSecure: !isUpgrade, maximumConnections: 10)
        let address = try #require(listener.localAddress)
        let settings = try TestCertificates.server()
        let body: @Sendable (AsyncSocket) async throws -> Void = { socket in
            if isUpgrade { try await socket.acceptStartTLS(as: .smtp(greeting: "localhost"), settings: settings) }
            try await socket.echo()
        }
        try await serving(listener, body) { _ in
            var unfinished: [RawSocket] = []
            for host in ["127.0.0.1", "127.0.0.2"] {
                for _ in 0..<5 {
                    unfinished.append(try RawSocket.connected(to: address, from: host))
                    try unfinished[unfinished.count - 1].send(isUpgrade ? "EHLO localhost\r\n" : "\u{16}\u{3}\u{1}")
                }
            }
            let quota = listener.reception.quota
            try await eventually("all places are taken") { quota.openCount == 10 && quota.unprovenCount >= 5 }
            var clients: [AsyncSocket] = []
            for count in 1...3 {
                let client = AsyncSocket()
                clients.append(client)
                try await client.connect(to: "127.0.0.1", port: listener.localPort, interface: "127.0.0.3")
                if isUpgrade {
                    try await client.startTLS(as: .smtp(name: "localhost"), settings: .ofTests())
                } else {
                    try await client.startTLS(settings: .ofTests())
                }
                try await client.write("hello\n")
                #expect(try await client.readLine(timeout: .patient) == "hello")
                #expect(listener.snapshot.refused.byConnections == count)
            }
            for client in clients { try await client.close() }
            withExtendedLifetime(unfinished) {}
        }
        #expect(listener.reception.quota.sourceCount == 0)
    }

    /// The silent connections wait for each other. A client from another address is served immediately.
    @Test func aSourceDoesNotTakeAllHandshakes() async throws {
        let listener = try listener(isSecure: true)
        listener.maximumHandshakes = 5
        let address = try #require(listener.localAddress)
        try await serving(listener, { try await $0.echo() }) { _ in
            var silent: [RawSocket?] = try (0..<80).map { _ in try .connected(to: address) }
            let slots = listener.preparation.slots
            try await eventually("76 connections wait") { slots.takenCount == 4 && slots.waitingCount == 76 }
            try await expectService(listener, from: "127.0.0.2", isSecure: true)
            #expect(slots.takenCount == 4)
            silent = silent.map { _ in nil }
            try await eventually("they have left") { slots.takenCount == 0 && slots.sourceCount == 0 }
            try await expectService(listener, from: "127.0.0.1", isSecure: true)
        }
    }

    /// Two sources hold all slots with handshakes that would otherwise last until their timeout.
    @Test func anOldHandshakeGivesWayToAWaitingOne() async throws {
        let listener = try listener(isSecure: true)
        listener.maximumHandshakes = 5
        let address = try #require(listener.localAddress)
        try await serving(listener, { try await $0.echo() }) { _ in
            let slots = listener.preparation.slots
            let many = try (0..<20).map { _ in try RawSocket.connected(to: address) }
            try await eventually("the others wait for their share") { slots.takenCount == 4 && slots.waitingCount == 16 }
            let few = try RawSocket.connected(to: address, from: "127.0.0.2")
            try await eventually("all slots are taken") { slots.takenCount == 5 }
            for number in 3...5 {
                try await expectService(listener, from: "127.0.0.\(number)", isSecure: true)
                #expect(listener.snapshot.refused.byHandshakes == number - 2 && slots.takenCount <= 5)
            }
            withExtendedLifetime((many, few)) {}
        }
        #expect(listener.preparation.slots.takenCount == 0)
    }

    // MARK: - Proxies

    private func header(_ client: String) -> String { "PROXY TCP4 \(client) 127.0.0.1 50000 443\r\n" }

    /// A burst is accepted, and other sources are not affected.
    @Test(arguments: [false, true]) func aRateRefusesFurtherConnections(_ isProxied: Bool) async throws {
        let listener = try listener(isProxied ? .required(from: .anyone, timeout: .patient) : nil)
        let limit = SourceRateLimit(perSource: .init(perSecond: 0.001, burst: 3))
        listener.rateLimit = limit
        #expect(listener.rateLimit == limit)
        let address = try #require(listener.localAddress)
        try await serving(listener, { try await $0.echo() }) { _ in
            func isServed(_ host: String) -> Bool {
                // A connection over the limit may be reset before connect(2) returns.
                let source = isProxied ? "127.0.0.1" : host
                guard let connection = try? RawSocket.connected(to: address, from: source) else { return false }
                try? connection.send((isProxied ? header(host) : "") + "hello\n")
                return (try? connection.receive(atLeast: 6)) == "hello\n"
            }
            for count in 1...5 { #expect(isServed("127.0.0.2") == (count <= 3)) }
            #expect(isServed("127.0.0.3"))
            try await eventually("they are counted") { listener.snapshot.refused.byRate == 2 }
            #expect(listener.snapshot.refused.total == 2)
            listener.rateLimit = nil
            #expect(isServed("127.0.0.2"))
        }
        #expect(listener.reception.quota.sourceCount == 0)
    }

    /// With a shorter prefix, neighbours are one source.
    @Test func aPrefixJoinsAddresses() async throws {
        let listener = try listener()
        listener.maximumConnectionsPerSource = 1
        listener.sourcePrefix = SourcePrefix(ipv4Bits: 24)
        let address = try #require(listener.localAddress)
        try await serving(listener, { try await $0.echo() }) { _ in
            let first = try RawSocket.connected(to: address, from: "127.0.5.1")
            try first.send("hello\n")
            #expect(try first.receive(atLeast: 6) == "hello\n")
            #expect(throws: LoopbackError.self) { try RawSocket.connected(to: address, from: "127.0.5.2").receive() }
            try await expectService(listener, from: "127.0.6.1")
        }
    }

    @Test func aPrefixSelectsBits() throws {
        func key(_ host: String, _ prefix: SourcePrefix) throws -> SourceKey? {
            SourceKey(limited: try #require(SocketEndpoint(literal: host, port: 1)), prefix)
        }
        let short = SourcePrefix(ipv4Bits: 8, ipv6Bits: 56)
        #expect(try key("10.1.2.3", short) == key("10.200.0.1", short))
        #expect(try key("10.1.2.3", short) != key("11.1.2.3", short))
        #expect(try key("::ffff:10.1.2.3", short) == key("10.200.0.1", short))
        #expect(try key("2001:db8:0:1200::1", short) == key("2001:db8:0:12ff::1", short))
        #expect(try key("2001:db8:0:1200::1", short) != key("2001:db8:0:1300::1", short))
        #expect(try key("2001:db8:0:1200::1", SourcePrefix()) != key("2001:db8:0:1201::1", SourcePrefix()))
        #expect(SourcePrefix(ipv4Bits: 0, ipv6Bits: 128) == SourcePrefix(ipv4Bits: 1, ipv6Bits: 64))
        #expect(SourcePrefix(ipv4Bits: 33, ipv6Bits: .min) == SourcePrefix(ipv4Bits: 32, ipv6Bits: 1))
    }

    /// The limit counts the clients, not the proxy.
    @Test func aProxyIsNotLimited() async throws {
        let listener = try listener(.required(from: .addresses(["127.0.0.1"]), timeout: .patient), maximumConnections: 10)
        listener.maximumConnectionsPerSource = 2
        let address = try #require(listener.localAddress)
        let errors = Locked<[AsyncSocketError.Code?]>([])
        let note: @Sendable (any Error, AsyncSocket) -> Void = { error, _ in
            errors.withLock { $0.append((error as? AsyncSocketError)?.code) }
        }
        try await serving(listener, onError: note, { try await $0.echo() }) { _ in
            var connections: [RawSocket] = []
            for client in ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"] {
                let connection = try RawSocket.connected(to: address)
                try connection.send(header(client) + "hello\n")
                #expect(try connection.receive(atLeast: 6) == "hello\n")
                connections.append(connection)
            }
            #expect(listener.reception.quota.sourceCount == 3)
            let refused = try RawSocket.connected(to: address)
            try refused.send(header("192.0.2.1") + "hello\n")
            #expect((try? refused.receiveAll()) ?? "" == "")
            // Health checks have no client.
            for _ in 0..<3 {
                let connection = try RawSocket.connected(to: address)
                try connection.send("PROXY UNKNOWN\r\nhello\n")
                #expect(try connection.receive(atLeast: 6) == "hello\n")
                connections.append(connection)
            }
            #expect(listener.reception.quota.sourceCount == 3)
            try await eventually("its error is reported") { errors.withLock { $0 } == [.tooManyConnections] }
            #expect(listener.snapshot.refused.total == 1)
            connections = []
            try await eventually("their places are free") { listener.reception.quota.sourceCount == 0 }
        }
        #expect(listener.reception.quota.openCount == 0)
    }

    // MARK: - Slots

    private func source(_ host: String) throws -> SourceKey { SourceKey(try .loopback(host, port: 9)) }

    /// The listener pauses while a source without a handshake is waiting.
    @Test func roomIsFoundWhenSourcesWaitForThemselves() async throws {
        let slots = HandshakeSlots(limit: 5)
        let (many, few) = (try source("127.0.0.1"), try source("127.0.0.2"))
        for _ in 0..<4 { await slots.enter(many) }
        // Waits for its share.
        let behind = Task.immediate { await slots.enter(many) }
        await slots.room()
        await slots.enter()
        let waiting = (0..<2).map { _ in Task.immediate { await slots.enter(few) } }
        let room = Task.immediate { await slots.room() }
        #expect(slots.waitingCount == 4)
        slots.leave()
        await waiting[0].value
        slots.leave(few)
        await waiting[1].value
        slots.leave(many)
        await behind.value
        #expect(slots.takenCount == 5 && slots.waitingCount == 1)
        slots.leave(many)
        await room.value
        #expect(slots.takenCount == 4 && slots.waitingCount == 0)
    }

    @Test func sourcesTakeTurns() async throws {
        let slots = HandshakeSlots(limit: 5)
        let (many, few) = (try source("127.0.0.1"), try source("127.0.0.2"))
        for _ in 0..<4 { await slots.enter(many) }
        await slots.enter()
        let order = Locked<[String]>([])
        func wait(_ source: SourceKey, _ name: String) -> Task<Void, Never> {
            Task.immediate {
                await slots.enter(source)
                order.withLock { $0.append(name) }
            }
        }
        let waiting = (0..<3).map { wait(many, "many \($0)") } + (0..<2).map { wait(few, "few \($0)") }
        #expect(slots.waitingCount == 5)
        for (count, source) in zip(1..., [nil, many, many, few, many]) {
            slots.leave(source)
            try await eventually("the next one has entered") { order.withLock { $0.count } == count }
        }
        for task in waiting { await task.value }
        #expect(order.withLock { $0 } == ["few 0", "few 1", "many 0", "many 1", "many 2"])
        #expect(slots.takenCount == 5 && slots.waitingCount == 0)
    }

    @Test(arguments: [0, 1, 2, 3, 4, 5, 9, 10, 4096, Int.max]) func aShareLeavesRoom(_ limit: Int) {
        let share = SourceKey.share(of: limit)
        #expect(share <= limit && (limit < 5 ? share == limit : share < limit) && share >= limit / 5 * 4)
    }

    @Test func peersOnAUnixDomainSocketHaveNoSource() throws {
        #expect(SourceKey(limited: try #require(SocketEndpoint(unixPath: "/tmp/x"))) == nil)
        #expect(SourceKey(limited: try .loopback(port: 1)) == SourceKey(limited: try .loopback(port: 2)))
        let hosts = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].compactMap { SocketEndpoint(literal: $0, port: 1) }
        let keys = hosts.map { SourceKey(limited: $0) }
        #expect(keys[0] == keys[1] && keys[1] != keys[2])
    }
}
