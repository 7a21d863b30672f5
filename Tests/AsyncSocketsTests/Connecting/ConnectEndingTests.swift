import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// An abandoned attempt to connect leaves nothing behind.
@Suite(.timeLimit(.patient)) struct ConnectEndingTests {
    /// A second client with a longer delay shows when the delay of the first has passed.
    @Test func d3DisconnectCancelsADelayedConnectionAttempt() async throws {
        let silent = try FullBacklog()
        let listener = try RawSocket.listening()
        let addresses = try [silent.address, listener.localAddress]
        // This runs on the loop that also runs the delay, so it is in time.
        let recorder = Recorder(recordsSteps: true) { client, told in
            if case .progressed(.trying) = told { client.disconnect() }
        }
        let client = AsyncSocket.client(of: addresses, delay: 0.1, delegate: recorder)
        try client.connectToHost()
        #expect(try await recorder.disconnected() == nil)
        let atSecond = Recorder()
        let second = AsyncSocket.client(of: addresses, delay: 0.3, delegate: atSecond)
        try second.connectToHost()
        try await atSecond.connected()
        let connection = try listener.accepted()
        #expect(try connection.peerAddress == second.localAddress)
        #expect(!listener.hasInput, "the first client has come too")
        #expect(recorder.unread.isEmpty)
        withExtendedLifetime((client, second, silent)) {}
    }

    /// Later connections reuse the descriptors of abandoned attempts.
    @Test func d4ALateCompletionDoesNotAffectTheNextConnection() async throws {
        let listener = try RawSocket.listening(backlog: 512)
        let address = try listener.localAddress
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        for round in 0..<300 {
            // Loopback connects immediately, so the attempt's completion is already pending when the socket
            // disconnects.
            try client.connect(toAddress: address, withTimeout: .patient)
            client.disconnect()
            #expect(try await recorder.disconnected() == nil)
            try client.connect(toAddress: address, withTimeout: .patient)
            try await recorder.connected()
            client.write(Data("\(round % 10)"), withTimeout: .patient, tag: round)
            var peer = try listener.accepted()
            while try peer.peerAddress != client.localAddress { peer = try listener.accepted() }
            #expect(try peer.receive(atLeast: 1) == "\(round % 10)")
            client.disconnect()
            #expect(try await recorder.disconnected() == nil)
        }
        withExtendedLifetime(client) {}
    }

    @Test func d4ALateAnswerOfTheResolverDoesNotTouchTheNextConnection() async throws {
        let first = try RawSocket.listening()
        let second = try RawSocket.listening()
        let firstAddress = try first.localAddress
        let gate = DispatchSemaphore(value: 0)
        let (begun, continuation) = AsyncStream<Void>.makeStream()
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        client.resolver = Resolver(concurrency: 1) { _ in
            continuation.yield()
            gate.wait()
            return .success([firstAddress])
        }
        try client.connectToHost()
        var iterator = begun.makeAsyncIterator()
        await iterator.next()
        client.disconnect()
        #expect(try await recorder.disconnected() == nil)
        try client.connect(toAddress: second.localAddress, withTimeout: .patient)
        try await recorder.connected()
        gate.signal()
        // The resolver has one thread, so its next result arrives after the late one.
        let other = AsyncSocket(inlineDelegate: recorder)
        other.resolver = client.resolver
        try other.connectToHost()
        await iterator.next()
        gate.signal()
        try await recorder.connected()
        let connection = try first.accepted()
        #expect(try connection.peerAddress == other.localAddress)
        #expect(!first.hasInput)
        #expect(try client.isConnected && client.connectedAddress == second.localAddress)
        withExtendedLifetime(client) {}
    }

    @Test func disconnectTakesTheLookupOutOfTheResolversLine() async throws {
        let (begun, continuation) = AsyncStream<String>.makeStream()
        let gate = DispatchSemaphore(value: 0)
        let resolver = Resolver(concurrency: 1) { query in
            continuation.yield(query.host)
            gate.wait()
            return .failure(ResolveError(query, code: EAI_NONAME))
        }
        let recorders = (0..<3).map { _ in Recorder() }
        let clients = recorders.map { AsyncSocket(inlineDelegate: $0) }
        for (number, client) in clients.enumerated() {
            client.resolver = resolver
            try client.connect(toHost: "\(number).test", onPort: 1, withTimeout: .patient)
        }
        var iterator = begun.makeAsyncIterator()
        #expect(await iterator.next() == "0.test")
        clients[1].disconnect()
        #expect(try await recorders[1].disconnected() == nil)
        gate.signal()
        #expect(await iterator.next() == "2.test")
        gate.signal()
        #expect(try await recorders[2].disconnected()?.code == .hostNotFound)
        withExtendedLifetime(clients) {}
    }

    @Test func theTimeoutEndsTheResolvingToo() async throws {
        let gate = DispatchSemaphore(value: 0)
        let loop = try SocketEventLoop()
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        client.stay(on: loop)
        client.resolver = Resolver(concurrency: 1) { query in
            gate.wait()
            return .failure(ResolveError(query, code: EAI_NONAME))
        }
        try client.connectToHost(withTimeout: 0.05)
        #expect(try await recorder.disconnected()?.code == .connectTimeout)
        try await eventually("the loop is empty") { loop.registrationCount == 0 }
        gate.signal()
        #expect(recorder.unread.isEmpty)
        withExtendedLifetime(client) {}
    }

    @Test func aSocketThatNoOneKeepsStopsConnecting() async throws {
        let loop = try SocketEventLoop()
        let silent = try [FullBacklog(), FullBacklog()]
        let recorder = Recorder(recordsSteps: true)
        var client: AsyncSocket? = .client(of: silent.map(\.address), delay: 0.01, delegate: recorder, loop: loop)
        try client?.connectToHost()
        let last = try #require(silent.last).address
        while case .progressed(let step) = await recorder.next(), step != .trying(last) {}
        #expect(loop.registrationCount == 3)
        client = nil
        try await eventually("the loop is empty") { loop.registrationCount == 0 }
        withExtendedLifetime(silent) {}
    }
}
