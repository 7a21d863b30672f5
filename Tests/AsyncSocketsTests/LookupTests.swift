import AsyncSockets
import Testing

@Suite(.timeLimit(.minutes(1))) struct LookupTests {
    @Test func namesAndLiteralsAreLookedUp() async throws {
        #expect(try await SocketAddress.lookUp(host: "localhost", port: 80).map(\.description) == ["127.0.0.1:80", "[::1]:80"])
        #expect(try await SocketAddress.lookUp(host: "192.0.2.1", port: 443).map(\.description) == ["192.0.2.1:443"])
    }

    @Test func anUnknownHostAndNoHostAreTypedErrors() async throws {
        var error = await #expect(throws: AsyncSocketError.self) {
            try await SocketAddress.lookUp(host: "no-such-host.invalid", port: 1)
        }
        #expect(error?.code == .hostNotFound)
        error = await #expect(throws: AsyncSocketError.self) { try await SocketAddress.lookUp(host: "", port: 1) }
        #expect(error?.code == .badParameter)
    }

    @Test func aCancelledTaskGetsNoAddresses() async throws {
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await SocketAddress.lookUp(host: "localhost", port: 1)
        }
        await #expect(throws: CancellationError.self) { try await task.value }
    }
}
