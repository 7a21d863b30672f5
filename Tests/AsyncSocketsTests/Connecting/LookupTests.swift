import AsyncSockets
import Dispatch
import SocketCore
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct LookupTests {
    @Test func hostNamesAndAddressLiteralsAreResolved() async throws {
        #expect(try await SocketEndpoint.lookUp(host: "localhost", port: 80).map(\.description) == ["127.0.0.1:80", "[::1]:80"])
        #expect(try await SocketEndpoint.lookUp(host: "192.0.2.1", port: 443).map(\.description) == ["192.0.2.1:443"])
    }

    @Test func anUnknownHostAndNoHostAreTypedErrors() async throws {
        var error = await #expect(throws: AsyncSocketError.self) {
            try await SocketEndpoint.lookUp(host: "no-such-host.invalid", port: 1)
        }
        #expect(error?.code == .hostNotFound)
        error = await #expect(throws: AsyncSocketError.self) { try await SocketEndpoint.lookUp(host: "", port: 1) }
        #expect(error?.code == .badParameter)
    }

    @Test func aTaskThatIsCancelledMeanwhileDoesNotWaitForTheResolver() async throws {
        let (begun, continuation) = AsyncStream<String>.makeStream()
        let gate = DispatchSemaphore(value: 0)
        let resolver = Resolver(concurrency: 1) { query in
            continuation.yield(query.host)
            gate.wait()
            return .success([])
        }
        // One lookup runs and one waits.
        let tasks = ["first.test", "second.test"].map { host in
            Task { try await SocketEndpoint.lookUp(host: host, port: 1, asking: resolver) }
        }
        var iterator = begun.makeAsyncIterator()
        _ = await iterator.next()
        for task in tasks {
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
        }
        gate.signal()
        async let last = SocketEndpoint.lookUp(host: "last.test", port: 1, asking: resolver)
        #expect(await iterator.next() == "last.test")
        gate.signal()
        #expect(try await last.isEmpty)
    }

    @Test func aCancelledTaskGetsNoAddresses() async throws {
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await SocketEndpoint.lookUp(host: "localhost", port: 1)
        }
        await #expect(throws: CancellationError.self) { try await task.value }
    }
}
