import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import FoundationEssentials
import Glibc
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// The test reads every option back from the kernel with its own `getsockopt`.
@Suite(.timeLimit(.patient)) struct SocketOptionTests {
    /// Returns the first number of the kernel's value, or -errno on failure.
    private func kernelValue(_ level: CInt, _ option: CInt, of socket: AsyncSocket) async -> CInt {
        await withCheckedContinuation { continuation in
            socket.perform { descriptor in
                guard let descriptor else { return continuation.resume(returning: -EBADF) }
                var value: CInt = 0
                var length = socklen_t(MemoryLayout<CInt>.size)
                let result = getsockopt(descriptor, level, option, &value, &length)
                continuation.resume(returning: result == 0 ? value : -errno)
            }
        }
    }

    private func kernelText(_ level: CInt, _ option: CInt, of socket: AsyncSocket) async -> String {
        await withCheckedContinuation { continuation in
            socket.perform { descriptor in
                var bytes = [UInt8](repeating: 0, count: 32)
                var length = socklen_t(bytes.count)
                let result = getsockopt(descriptor ?? -1, level, option, &bytes, &length)
                continuation.resume(returning: result == 0 ? String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self) : "?")
            }
        }
    }

    private static let tcp = CInt(IPPROTO_TCP)

    /// An option, a value for it, and the resulting value in the kernel.
    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let set: @Sendable (AsyncSocket) throws -> Void
        let level: CInt
        let option: CInt
        let expected: CInt

        init<Value: Equatable>(
            _ option: SocketOptionKey<Value>, _ value: Value, readsAs answer: Value? = nil, _ level: CInt, _ number: CInt,
            _ expected: CInt
        ) {
            testDescription = "\(option.name) \(value)"
            self.level = level
            self.option = number
            self.expected = expected
            set = { socket in
                try socket.setOption(option, to: value)
                if socket.isConnected || !socket.isDisconnected { #expect(try socket.option(option) == answer ?? value) }
            }
        }
    }

    private static let forConnections: [Case] = [
        Case(.noDelay, false, tcp, TCP_NODELAY, 0),
        Case(.keepAlive, true, SOL_SOCKET, SO_KEEPALIVE, 1),
        Case(.keepAliveIdle, .seconds(76.5), readsAs: .seconds(77), tcp, TCP_KEEPIDLE, 77),
        Case(.keepAliveInterval, .seconds(11), tcp, TCP_KEEPINTVL, 11),
        Case(.keepAliveCount, 5, tcp, TCP_KEEPCNT, 5),
        Case(.receiveBufferSize, 65_536, readsAs: 131_072, SOL_SOCKET, SO_RCVBUF, 131_072),
        Case(.sendBufferSize, 65_536, readsAs: 131_072, SOL_SOCKET, SO_SNDBUF, 131_072),
        Case(.linger, .zero, SOL_SOCKET, SO_LINGER, 1),
        Case(.userTimeout, .seconds(1.5), tcp, TCP_USER_TIMEOUT, 1500),
        Case(.userTimeout, .seconds(1.1), readsAs: .milliseconds(1_100), tcp, TCP_USER_TIMEOUT, 1_100),
        Case(.userTimeout, .nanoseconds(1_000_001), readsAs: .milliseconds(2), tcp, TCP_USER_TIMEOUT, 2),
        Case(.ipTTL, 42, CInt(IPPROTO_IP), IP_TTL, 42),
        Case(.trafficClass, 0x48, CInt(IPPROTO_IP), IP_TOS, 0x48),
        Case(.priority, 5, SOL_SOCKET, SO_PRIORITY, 5),
        Case(.notSentLowWater, 16_384, tcp, TCP_NOTSENT_LOWAT, 16_384),
    ]

    /// The kernel changes it during the TCP handshake, so setting it is useful only on a connection.
    private static let forConnectionsAlone: [Case] = [Case(.quickAck, false, tcp, TCP_QUICKACK, 0)]

    private static let forListeners: [Case] = [
        Case(.reuseAddress, false, SOL_SOCKET, SO_REUSEADDR, 0),
        Case(.reusePort, true, SOL_SOCKET, SO_REUSEPORT, 1),
        Case(.maximumSegmentSize, 600, tcp, TCP_MAXSEG, 600),
        Case(.fastOpenQueueLength, 7, tcp, TCP_FASTOPEN, 7),
    ]

    @Test(arguments: forConnections + forConnectionsAlone)
    func anOptionOfAConnectionReachesTheKernelAtOnce(_ each: Case) async throws {
        let link = try await Link.make()
        try each.set(link.client)
        #expect(await kernelValue(each.level, each.option, of: link.client) == each.expected)
        withExtendedLifetime(link) {}
    }

    @Test(arguments: forConnections)
    func anOptionSetBeforeReachesConnectionListenerAndChildren(_ each: Case) async throws {
        let recorders = [Recorder(), Recorder()]
        let listener = AsyncSocket(inlineDelegate: recorders[0])
        let client = AsyncSocket(inlineDelegate: recorders[1])
        try each.set(listener)
        try each.set(client)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
        try await recorders[1].connected()
        let child = try await recorders[0].accepted()
        for socket in [client, listener, child] {
            #expect(await kernelValue(each.level, each.option, of: socket) == each.expected)
        }
        withExtendedLifetime(recorders) {}
    }

    @Test(arguments: forListeners)
    func anOptionOfAListenerReachesTheKernel(_ each: Case) async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try each.set(listener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        #expect(await kernelValue(each.level, each.option, of: listener) == each.expected)
        try each.set(listener)
        #expect(await kernelValue(each.level, each.option, of: listener) == each.expected)
        // Connections do not support this option, but are still accepted.
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        let child = try await recorder.accepted()
        #expect(child.isConnected)
        withExtendedLifetime((client, recorder)) {}
    }

    @Test func theOptionsOfIPPickTheFamily() async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onInterface: "::1", port: 0)
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        let child = try await recorder.accepted()
        try child.setOption(.ipTTL, to: 43)
        try child.setOption(.trafficClass, to: 0x28)
        #expect(await kernelValue(CInt(IPPROTO_IPV6), IPV6_UNICAST_HOPS, of: child) == 43)
        #expect(await kernelValue(CInt(IPPROTO_IPV6), IPV6_TCLASS, of: child) == 0x28)
        #expect(try child.option(.trafficClass) == 0x28)
        withExtendedLifetime((client, listener, recorder)) {}
    }

    @Test func textOptionsReachTheKernel() async throws {
        let link = try await Link.make()
        try link.client.setOption(.congestionControl, to: "reno")
        #expect(await kernelText(Self.tcp, TCP_CONGESTION, of: link.client) == "reno")
        #expect(try link.client.option(.congestionControl) == "reno")
        let unknown = #expect(throws: AsyncSocketError.self) { try link.client.setOption(.congestionControl, to: "no such") }
        #expect(unknown?.errno == ENOENT)
        withExtendedLifetime(link) {}
    }

    /// These need privileges. Without them the kernel's error is thrown.
    @Test func privilegedOptionsReachTheKernelOrSayWhyNot() async throws {
        let link = try await Link.make()
        do {
            try link.client.setOption(.mark, to: 7)
            try link.client.setOption(.bindToDevice, to: "lo")
            #expect(await kernelValue(SOL_SOCKET, SO_MARK, of: link.client) == 7)
            #expect(await kernelText(SOL_SOCKET, SO_BINDTODEVICE, of: link.client) == "lo")
            let error = #expect(throws: AsyncSocketError.self) { try link.client.setOption(.bindToDevice, to: "no-such-device") }
            #expect(error?.errno == ENODEV)
        } catch {
            #expect(error.errno == EPERM)
            #expect(geteuid() != 0)
        }
        withExtendedLifetime(link) {}
    }

    // MARK: - Invalid options

    @Test func whatMakesNoSenseIsTheCallersError() async throws {
        let link = try await Link.make()
        for refused: @Sendable (AsyncSocket) throws -> Void in [
            { try $0.setOption(.receiveBufferSize, to: .max) },
            { try $0.setOption(.keepAliveIdle, to: .seconds(1 << 40)) },
            { try $0.setOption(.userTimeout, to: .seconds(Int64.max)) },
            { try $0.setOption(.linger, to: .seconds(5)) },
            { try $0.setOption(.congestionControl, to: "a\0b") },
        ] {
            for socket in [link.client, link.listener, AsyncSocket()] {
                let error = #expect(throws: AsyncSocketError.self) { try refused(socket) }
                #expect(error?.code == .badParameter)
                #expect(error?.fault == .caller)
                #expect(error?.errno == EINVAL)
            }
        }
        let error = #expect(throws: AsyncSocketError.self) { try link.client.setOption(.keepAliveIdle, to: .zero) }
        #expect(error?.errno == EINVAL)
        withExtendedLifetime(link) {}
    }

    @Test func anOptionOfAnotherFamilyIsTheCallersError() async throws {
        let folder = try TemporaryFolder()
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onPath: folder.path("s"))
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        let child = try await recorder.accepted()
        for socket in [listener, child] {
            for set: @Sendable (AsyncSocket) throws -> Void in [
                { try $0.setOption(.noDelay, to: true) }, { try $0.setOption(.ipTTL, to: 3) },
            ] {
                let error = #expect(throws: AsyncSocketError.self) { try set(socket) }
                #expect(error?.code == .badParameter)
                #expect(error?.errno == EOPNOTSUPP)
            }
        }
        withExtendedLifetime((client, recorder)) {}
    }

    @Test func aRefusedValueIsNotKept() async throws {
        let link = try await Link.make()
        try link.client.setOption(.keepAliveCount, to: 3)
        #expect(throws: AsyncSocketError.self) { try link.client.setOption(.keepAliveCount, to: 1000) }
        link.client.disconnect()
        #expect(try await link.atClient.disconnected() == nil)
        #expect(try link.client.option(.keepAliveCount) == 3)
        let error = #expect(throws: AsyncSocketError.self) { try link.client.option(.noDelay) }
        #expect(error?.code == .badConfiguration)
        withExtendedLifetime(link) {}
    }

    @Test func aKeptValueThatTheKernelRefusesEndsTheAttempt() async throws {
        let recorders = [Recorder(), Recorder()]
        let listener = AsyncSocket(inlineDelegate: recorders[0])
        try listener.setOption(.bindToDevice, to: "no-such-device")
        let refused = #expect(throws: AsyncSocketError.self) { try listener.accept(onInterface: "127.0.0.1", port: 0) }
        #expect(refused?.errno == ENODEV || refused?.errno == EPERM)
        #expect(listener.isDisconnected)
        let client = AsyncSocket(inlineDelegate: recorders[1])
        try client.setOption(.bindToDevice, to: "no-such-device")
        try client.connect(toHost: "127.0.0.1", onPort: 9, withTimeout: .patient)
        let error = try #require(try await recorders[1].disconnected())
        #expect(error.code == .connectFailed)
        #expect(error.errno == refused?.errno)
        withExtendedLifetime(recorders) {}
    }

    // MARK: - When options take effect

    @Test func smallWritesGoOutAtOnceUnlessTheUserSaysOtherwise() async throws {
        let link = try await Link.make()
        // An accepted connection starts when the delegate has received its socket.
        link.client.write(Data("a"), tag: 1)
        link.server.readData(tag: 1)
        #expect(try await link.atServer.readText() == "a")
        for socket in [link.client, link.server] { #expect(await kernelValue(Self.tcp, TCP_NODELAY, of: socket) == 1) }
        withExtendedLifetime(link) {}
    }

    /// The option is set at some point between the call of `connect` and the connection, and is never lost.
    @Test func anOptionThatIsSetWhileConnectingCounts() async throws {
        let atListener = Recorder()
        let listener = AsyncSocket(inlineDelegate: atListener)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        for round in 1...100 {
            let recorder = Recorder()
            let client = AsyncSocket(inlineDelegate: recorder)
            try client.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
            try client.setOption(.keepAliveCount, to: round)
            try await recorder.connected()
            #expect(await kernelValue(Self.tcp, TCP_KEEPCNT, of: client) == CInt(round))
            withExtendedLifetime(recorder) {}
        }
        withExtendedLifetime((listener, atListener)) {}
    }

    @Test func anOptionSetOnTheAcceptedSocketInItsCallbackCounts() async throws {
        let recorder = Recorder { _, told in
            if case .accepted(let child) = told { try? child.setOption(.noDelay, to: false) }
        }
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        let child = try await recorder.accepted()
        child.write(Data("x"), withTimeout: .patient, tag: 0)
        #expect(try client.receive(atLeast: 1) == "x")
        #expect(await kernelValue(Self.tcp, TCP_NODELAY, of: child) == 0)
        withExtendedLifetime((listener, recorder)) {}
    }

    /// The kernel does not pass on the options of a Unix-domain listener.
    @Test func aUnixChildGetsTheListenersOptions() async throws {
        let folder = try TemporaryFolder()
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.setOption(.sendBufferSize, to: 30_000)
        try listener.accept(onPath: folder.path("s"))
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        let child = try await recorder.accepted()
        #expect(await kernelValue(SOL_SOCKET, SO_SNDBUF, of: child) == 60_000)
        withExtendedLifetime((client, listener, recorder)) {}
    }

    /// Two threads set and read options while the connection opens and closes.
    @Test func optionsMayBeSetFromAnyThreadWhileTheConnectionEnds() async throws {
        let link = try await Link.make()
        let client = link.client
        let isDone = Locked(false)
        await withTaskGroup(of: Int.self) { group in
            for _ in 0..<2 {
                group.addTask {
                    var answers = 0
                    while !isDone.withLock({ $0 }) || answers == 0 {
                        try? client.setOption(.keepAlive, to: true)
                        if (try? client.option(.keepAlive)) == true { answers += 1 }
                        await Task.yield()
                    }
                    return answers
                }
            }
            for _ in 0..<100 {
                client.disconnect()
                _ = try? await link.atClient.disconnected()
                try? client.connect(toHost: "127.0.0.1", onPort: link.listener.localPort, withTimeout: .patient)
                try? await link.atClient.connected()
            }
            isDone.withLock { $0 = true }
            for await answers in group { #expect(answers > 0) }
        }
        #expect(client.isConnected)
        #expect(await kernelValue(SOL_SOCKET, SO_KEEPALIVE, of: client) == 1)
        withExtendedLifetime(link) {}
    }

    @Test func severalListenersShareAPortWithReusePort() async throws {
        let recorders = [Recorder(), Recorder(), Recorder()]
        let listeners = recorders.map { AsyncSocket(inlineDelegate: $0) }
        for listener in listeners.prefix(2) { try listener.setOption(.reusePort, to: true) }
        try listeners[0].accept(onInterface: "127.0.0.1", port: 0)
        let port = listeners[0].localPort
        try listeners[1].accept(onInterface: "127.0.0.1", port: port)
        let error = #expect(throws: AsyncSocketError.self) { try listeners[2].accept(onInterface: "127.0.0.1", port: port) }
        #expect(error?.errno == EADDRINUSE)
        let address = try #require(listeners[0].localAddress)
        // The kernel selects a listener by a hash of the ports. With this many clients, each listener gets
        // one.
        let clients = try (0..<64).map { _ in try RawSocket.connected(to: address) }
        _ = try await recorders[0].accepted()
        _ = try await recorders[1].accepted()
        withExtendedLifetime((clients, listeners)) {}
    }

    // MARK: - User data

    @Test func userDataIsNotInheritedByAcceptedSockets() async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        #expect(listener.userData == nil)
        listener.userData = "mine"
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        let child = try await recorder.accepted()
        #expect(child.userData == nil)
        #expect(listener.userData as? String == "mine")
        withExtendedLifetime((client, recorder)) {}
    }

    @Test(arguments: Link.Delivery.allCases)
    func performPassesTheDescriptorWhileTheSocketIsOpen(_ delivery: Link.Delivery) async throws {
        let link = try await Link.make(delivery)
        let port = link.client.localPort
        #expect(await localPort(of: link.client) == port)
        #expect(await localPort(of: link.listener) == link.listener.localPort)
        link.client.disconnect()
        #expect(try await link.atClient.disconnected() == nil)
        #expect(await localPort(of: link.client) == nil)
        #expect(await localPort(of: AsyncSocket(inlineDelegate: Recorder?.none, socketQueue: delivery.socketQueue)) == nil)
        withExtendedLifetime(link) {}
    }

    /// Returns the descriptor's port according to the kernel.
    private func localPort(of socket: AsyncSocket) async -> UInt16? {
        await withCheckedContinuation { continuation in
            socket.perform { descriptor in
                continuation.resume(returning: descriptor.flatMap { try? RawSocket.localAddress(of: $0).port })
            }
        }
    }

    @Test func performMayCallTheSocketItself() async throws {
        let link = try await Link.make()
        let client = link.client
        client.perform { _ in
            client.write(Data("from within"), withTimeout: .patient, tag: 1)
            client.disconnectAfterWriting()
        }
        link.server.readData(toLength: 11, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.readText() == "from within")
        #expect(try await link.atClient.disconnected() == nil)
        withExtendedLifetime(link) {}
    }
}
