import AsyncSockets
import AsyncSocketsTesting
import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// Hosts accepted by `connect` and `lookUp`.
@Suite(.timeLimit(.patient)) struct HostTests {
    private static let hostile = [
        "", "\0", "127.0.0.1\0.example.org", "127.1", "2130706433", "0x7f.0.0.1", "127.0.0.1.", "::1%", "[127.0.0.1]", "a:80",
        String(repeating: "a", count: 256), String(repeating: "a", count: 1 << 20),
    ]

    /// Selected by index, because a test's arguments are printed.
    @Test(arguments: 0..<hostile.count)
    func whatIsNoHostIsTheCallersErrorAtOnce(_ index: Int) async throws {
        let host = Self.hostile[index]
        let socket = AsyncSocket()
        var error = #expect(throws: AsyncSocketError.self) { try socket.connect(toHost: host, onPort: 1) }
        #expect(error?.code == .badParameter && error?.fault == .caller)
        for proxy in [SocketProxy.socks5(host: host, port: 1), .http(host: host, port: 1)] {
            socket.proxy = proxy
            error = #expect(throws: AsyncSocketError.self) { try socket.connect(toHost: "example.org", onPort: 1) }
            #expect(error?.code == .badParameter)
        }
        error = await #expect(throws: AsyncSocketError.self) { try await SocketEndpoint.lookUp(host: host, port: 1) }
        #expect(error?.code == .badParameter)
        #expect(socket.isDisconnected)
    }

    @Test func bracketsAroundAnIPv6AddressAreTaken() async throws {
        let listener = try RawSocket.listening("::1")
        let address = try listener.localAddress
        #expect(try await SocketEndpoint.lookUp(host: "[::1]", port: 7).map(\.description) == ["[::1]:7"])
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        try client.connect(toHost: "[::1]", onPort: try #require(address.port), withTimeout: .patient)
        try await recorder.connected()
        #expect(client.connectedAddress == address)
    }

    @Test func anInterfaceWithAZeroByteIsTheCallersError() throws {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        for text in ["127.0.0.1\0.example.org", "lo\0", "127.1"] {
            var error = #expect(throws: AsyncSocketError.self) { try socket.accept(onInterface: text, port: 0) }
            #expect(error?.code == .badParameter && error?.fault == .caller)
            error = #expect(throws: AsyncSocketError.self) { try socket.connect(toHost: "::1", onPort: 1, viaInterface: text) }
            #expect(error?.code == .badParameter && error?.fault == .caller)
        }
        #expect(socket.isDisconnected)
    }

    // MARK: - Faults

    /// Error codes of getaddrinfo(3) with their faults. glibc does not export names for -5 (no data) and -9
    /// (no such family).
    private static let answers: [(code: CInt, errno: CInt?, fault: TLSError.Fault)] = [
        (EAI_NONAME, nil, .caller), (-5, nil, .caller), (-9, nil, .caller), (EAI_AGAIN, nil, .system), (EAI_FAIL, nil, .system),
        (EAI_MEMORY, nil, .system), (EAI_SYSTEM, EMFILE, .system), (EAI_SYSTEM, ECONNREFUSED, .system),
    ]

    @Test(arguments: 0..<answers.count)
    func aResolverThatIsDownIsNotTheCallersFault(_ index: Int) async throws {
        let answer = Self.answers[index]
        let resolver = Resolver(concurrency: 1) {
            .failure(ResolveError($0, code: answer.code, errno: answer.errno ?? ENOENT))
        }
        let recorder = Recorder()
        let client = AsyncSocket(inlineDelegate: recorder)
        client.resolver = resolver
        try client.connect(toHost: "some.example", onPort: 1, withTimeout: .patient)
        let told = try await recorder.disconnected()
        let thrown = await #expect(throws: AsyncSocketError.self) {
            try await SocketEndpoint.lookUp(host: "some.example", port: 1, asking: resolver)
        }
        for error in [try #require(told), try #require(thrown)] {
            #expect((error.code, error.fault, error.errno) == (.hostNotFound, answer.fault, answer.errno))
            #expect(error.message.contains("some.example"))
            if let number = answer.errno { #expect(error.message.contains(String(cString: strerror(number)))) }
        }
    }
}
