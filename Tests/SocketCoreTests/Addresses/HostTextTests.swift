import Glibc
import SocketBuffers
import SocketCore
import SocketTestTraits
import Testing

/// One rule determines for every parser whether the text of a host is an address, a name or invalid.
///
/// Long texts are selected by index, because a test's arguments are printed.
@Suite(.timeLimit(.patient)) struct HostTextTests {
    /// Texts that inet_aton(3) parses as 127.0.0.1, and others that end in a number but are not four decimal
    /// numbers.
    static let shorthands = [
        "127.1", "127.0.1", "2130706433", "0x7f.0.0.1", "0x7f000001", "0X7F.1", "0177.0.0.1", "127.0.0.01", "1", "0", "0x",
        "256.0.0.1", "1.2.3.4.5", "127.0.0.1.", "example.0x7f", "example.1", "1..2",
    ]

    /// Texts that a C parser could misinterpret.
    static let hostile = [
        "", "\0", "127.0.0.1\0", "127.0.0.1\0.example.org", "::1\0", "[::1]\0", "\0127.0.0.1", "localhost\0",
        "::1%", "::1%\0", "fe80::1%lo\0", "fe80::1%nowhere0", "[", "[]", "[::1", "::1]", "[127.0.0.1]", "[localhost]", "[::1]:80",
        "[::1]x", "[[::1]]", "a:80", "localhost:80", ":", ":::", "1::2::3", "\u{661}27.0.0.1:", "\u{FF3B}::1\u{FF3D}",
        String(repeating: "a", count: 256), String(repeating: "1", count: 1 << 20), String(repeating: ":", count: 1 << 20),
        "::1%" + String(repeating: "a", count: 1 << 20), String(repeating: "\u{E9}", count: 1 << 20),
    ]

    private static func resolve(_ host: String) async -> Resolver.Answer {
        let silent = Resolver(concurrency: 1) { query in
            Issue.record("asked for \(query.host)")
            return .failure(ResolveError(query, code: EAI_NONAME))
        }
        return await withCheckedContinuation { continuation in
            _ = silent.resolve(HostQuery(host: host, port: 80)) { continuation.resume(returning: $0) }
        }
    }

    @Test(arguments: 0..<shorthands.count)
    func aShorthandOfAnIPv4AddressIsNoHostForAnyParser(_ index: Int) async throws {
        let text = Self.shorthands[index]
        #expect(SocketEndpoint(literal: text, port: 80) == nil)
        #expect(throws: ProxyFailure.self) { try ProxyTarget(host: text, port: 80) }
        #expect(throws: ProxyFailure.self) {
            try ProxyNegotiation(through: .http(host: text, port: 80), to: ProxyTarget(host: "a", port: 1))
        }
        #expect(throws: InterfaceError.self) { try LocalInterface(text) }
        await #expect(throws: ResolveError.self) { try await Self.resolve(text).get() }
    }

    @Test(arguments: 0..<hostile.count)
    func whatIsNoHostIsRefusedByEveryParser(_ index: Int) async throws {
        let text = Self.hostile[index]
        #expect(SocketEndpoint(literal: text, port: 80) == nil)
        #expect(throws: ProxyFailure.self) { try ProxyTarget(host: text, port: 80) }
        #expect(throws: ProxyFailure.self) {
            try ProxyNegotiation(through: .socks5(host: text, port: 80), to: ProxyTarget(host: "a", port: 1))
        }
        await #expect(throws: ResolveError.self) { try await Self.resolve(text).get() }
    }

    @Test(arguments: [
        ("127.0.0.1", "127.0.0.1:80"), ("0.0.0.0", "0.0.0.0:80"), ("255.255.255.255", "255.255.255.255:80"), ("::1", "[::1]:80"),
        ("[::1]", "[::1]:80"), ("::ffff:127.0.0.1", "[::ffff:127.0.0.1]:80"), ("[2001:DB8::7]", "[2001:db8::7]:80"),
        ("0000:0000:0000:0000:0000:ffff:255.255.255.255", "[::ffff:255.255.255.255]:80"),
    ])
    func anAddressIsOneWhereverAHostIsNamed(_ text: String, _ expected: String) async throws {
        #expect(try await Self.resolve(text).get().map(\.description) == [expected])
        guard case .address(let address) = try ProxyTarget(host: text, port: 80) else {
            Issue.record("\(text) is a name to the proxy")
            return
        }
        #expect(address.description == expected)
        #expect(throws: Never.self) {
            try ProxyNegotiation(through: .http(host: text, port: 80), to: ProxyTarget(host: "a", port: 1))
        }
    }

    @Test func aZoneBelongsToAnIPv6AddressAndHasAName() throws {
        #expect(SocketEndpoint(literal: "fe80::1%lo", port: 1)?.host == "fe80::1%lo")
        #expect(SocketEndpoint(literal: "127.0.0.1%lo", port: 1) == nil)
        #expect(SocketEndpoint(literal: "[::1]", port: 1) == nil)
    }

    @Test func aNameGoesToTheResolverAsItIs() async throws {
        for name in ["example.org", "1and1.example", "4.example", "0xabc.example", "b\u{fc}cher.example", "example.org."] {
            let asked = Locked<[String]>([])
            let resolver = Resolver(concurrency: 1) { query in
                asked.withLock { $0.append(query.host) }
                return .failure(ResolveError(query, code: EAI_NONAME))
            }
            _ = await withCheckedContinuation { continuation in
                _ = resolver.resolve(HostQuery(host: name, port: 80)) { continuation.resume(returning: $0) }
            }
            #expect(asked.withLock { $0 } == [name])
        }
    }

    // MARK: - Other texts

    static let hostileInterfaces = [
        "127.0.0.1\0.example.org", "lo\0", "\0", "lo\0:80", "lo:80\0", "127.0.0.1:8\00", "127.0.0.1:\u{661}", "::1%", "[::1%]",
        "[::1\0]",
        "[::1\0]:80", "l\u{f6}", "127.0.0.1:" + String(repeating: "0", count: 1 << 20) + "1x",
        String(repeating: "a", count: 1 << 20),
    ]

    @Test(arguments: 0..<hostileInterfaces.count)
    func aHostileInterfaceIsRefused(_ index: Int) {
        #expect(throws: InterfaceError.self) { try LocalInterface(Self.hostileInterfaces[index]) }
    }

    @Test func hostilePathsAndAbstractNamesAreRefusedOrKeptWhole() throws {
        for path in [
            "", "\0", "/tmp/a\0b", "\0abstract", String(repeating: "/a", count: 1 << 20), String(repeating: "\u{E9}", count: 54),
        ] {
            #expect(SocketEndpoint(unixPath: path) == nil)
        }
        #expect(
            SocketEndpoint(unixPath: String(repeating: "\u{E9}", count: 53))?.unixPath == String(repeating: "\u{E9}", count: 53))
        // Zeros mean nothing in an abstract name (unix(7)): it has a length.
        for name in ["a\0b", "\0", "\u{E9}", String(repeating: "x", count: SocketEndpoint.maximumAbstractNameBytes)] {
            #expect(SocketEndpoint(abstractName: name)?.abstractName == name)
        }
        for name in ["", String(repeating: "x", count: 1 << 20), String(repeating: "\u{E9}", count: 54)] {
            #expect(SocketEndpoint(abstractName: name) == nil)
        }
    }

    static let hostileCredentials = [
        ("", "x"), ("x", ""), ("a\0b", "x"), ("x", "a\0b"), (String(repeating: "a", count: 256), "x"),
        ("x", String(repeating: "\u{E9}", count: 128)), ("x", String(repeating: "a", count: 1 << 20)),
    ]

    @Test(arguments: 0..<hostileCredentials.count)
    func hostileCredentialsNeverReachASOCKSProxy(_ index: Int) throws {
        let (name, password) = Self.hostileCredentials[index]
        let proxy = SocketProxy.socks5(host: "a", port: 1, credentials: .init(username: name, password: password))
        #expect(throws: ProxyFailure.self) { try ProxyNegotiation(through: proxy, to: ProxyTarget(host: "a", port: 1)) }
    }

    @Test(arguments: [("a\0b", "x"), ("x", "a\0b"), ("a:b", "x"), ("a\r\nX: y", "x"), ("x", "a\nb"), ("x", "\u{7f}")])
    func hostileCredentialsNeverReachAnHTTPProxy(_ name: String, _ password: String) throws {
        let proxy = SocketProxy.http(host: "a", port: 1, credentials: .init(username: name, password: password))
        #expect(throws: ProxyFailure.self) { try ProxyNegotiation(through: proxy, to: ProxyTarget(host: "a", port: 1)) }
    }

    @Test func credentialsOutsideOfASCIIAreSentAsUTF8() throws {
        let credentials = SocketProxy.Credentials(username: "us\u{e9}r", password: String(repeating: "\u{E9}", count: 100))
        for proxy in [
            SocketProxy.socks5(host: "a", port: 1, credentials: credentials), .http(host: "a", port: 1, credentials: credentials),
        ] {
            #expect(throws: Never.self) { try ProxyNegotiation(through: proxy, to: ProxyTarget(host: "a", port: 1)) }
        }
    }

    static let longOptions = [
        "lo\0", "\0", "0123456789abcdef", String(repeating: "a", count: 1 << 20), String(repeating: "\u{E9}", count: 8),
    ]

    @Test(arguments: 0..<longOptions.count)
    func anOptionOfTextThatDoesNotFitIsNotKept(_ index: Int) {
        let text = Self.longOptions[index]
        var options = SocketOptionSet()
        for option in [SocketOptionKey<String>.bindToDevice, .congestionControl] {
            let error = #expect(throws: SystemError.self) { try options.set(option, to: text) }
            #expect(error?.errno == EINVAL)
            #expect(options.value(of: option) == nil)
        }
    }
}
