import AsyncSocketsTesting
import Foundation
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The message of each error contains the relevant details: the address, the path, the limit, or the number
/// of bytes.
@Suite(.timeLimit(.patient)) struct ErrorMessageTests {
    /// A way to provoke an error, and what its description must contain.
    struct Way: Sendable, CustomTestStringConvertible {
        let code: AsyncSocketError.Code
        /// Returns the expected words and the error.
        let provoke: @Sendable () async throws -> ([String], AsyncSocketError)

        init(
            _ code: AsyncSocketError.Code, _ provoke: @escaping @Sendable () async throws -> ([String], AsyncSocketError)
        ) {
            self.code = code
            self.provoke = provoke
        }

        var testDescription: String { code.description }
    }

    private static let ways = callers + connecting + times + limits + ends + transport

    @Test(arguments: ways) func theMessageNamesItsObject(_ way: Way) async throws {
        let (objects, error) = try await way.provoke()
        #expect(error.code == way.code)
        for object in objects { #expect("\(error)".contains(object), "\(error)") }
        #expect(!error.message.isEmpty)
    }

    @Test func theTextBeginsWithTheOperation() {
        for operation in AsyncSocketError.Operation.allCases {
            let error = AsyncSocketError(.system, fault: .system, operation: operation, message: "it failed")
            #expect("\(error)".hasPrefix("\(operation.rawValue): "))
        }
    }

    /// Fails if an error code is added without a way to provoke it.
    @Test func theTableHasEveryCode() throws {
        let source = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../../Sources/AsyncSockets/AsyncSocketError.swift")
        let text = try String(contentsOf: source, encoding: .utf8)
        let codes = text.matches(of: /public static let (\w+) = Code\(/).map { String($0.output.1) }
        #expect(codes.count > 20)
        #expect(Set(codes) == Set(Self.ways.map(\.code.description)))
    }

    private static func error(_ body: () async throws -> Void) async throws -> AsyncSocketError {
        try #require(await #expect(throws: AsyncSocketError.self) { try await body() })
    }

    // MARK: - Errors of the caller

    private static let callers = [
        Way(.badConfiguration) {
            (["connect it first"], try await error { _ = try await AsyncSocket().read() })
        },
        Way(.badParameter) {
            let pair = try await SocketPair()
            return (["count must be at least 0, but is -1"], try await error { _ = try await pair.client.read(exactly: -1) })
        },
        Way(.badParameter) {
            let pair = try await SocketPair()
            return (["\"/dev/null\""], try await error { try await pair.client.write(contentsOfFile: "/dev/null") })
        },
        Way(.closed) {
            let pair = try await SocketPair()
            pair.client.disconnect()
            return (["this side closed the connection"], try await error { _ = try await pair.client.read() })
        },
    ]

    // MARK: - Connecting

    private static let connecting = [
        Way(.hostNotFound) {
            let socket = AsyncSocket()
            socket.resolver = Resolver(concurrency: 1) { query in .failure(ResolveError(query, code: EAI_NONAME)) }
            return (["mail.test"], try await error { try await socket.connect(to: "mail.test", port: 1) })
        },
        Way(.noUsableAddress) {
            let socket = AsyncSocket()
            socket.isIPv6Enabled = false
            return (["::1", "IPv6"], try await error { try await socket.connect(to: "::1", port: 1) })
        },
        Way(.connectFailed) {
            let port = try RawSocket.freePort()
            let failure = try await error { try await AsyncSocket().connect(to: "127.0.0.1", port: port) }
            return (["127.0.0.1:\(port): connection refused"], failure)
        },
        Way(.proxyRefused) { try await proxied(.send("HTTP/1.1 403 Not you\r\n\r\n"), "403 Not you") },
        Way(.proxyAuthenticationRequired) { try await proxied(.send("HTTP/1.1 407 Who?\r\n\r\n"), "407 Who?") },
        Way(.proxyFailed) { try await proxied(.finish, "closed before the tunnel") },
        Way(.connectTimeout) {
            let silence = try TestSignal()
            defer { silence.fire() }
            return try await proxied(.wait(for: silence), "0.2 seconds", timeout: .milliseconds(200))
        },
        Way(.connectTimeout) {
            let silent = try FullBacklog()
            let failure = try await error {
                try await AsyncSocket().connect(to: silent.address, timeout: .milliseconds(50))
            }
            return (["\"\(silent.address)\" did not respond", "0.05 seconds"], failure)
        },
    ]

    /// Connects through a proxy that performs `step`. Returns the expected words and the error.
    private static func proxied(
        _ step: ScriptedPeer.Step, _ object: String, timeout: Duration = .patient
    ) async throws -> ([String], AsyncSocketError) {
        let peer = try ScriptedPeer.listening([.expect(through: "\r\n\r\n"), step])
        let proxy = SocketProxy.http(host: "127.0.0.1", port: peer.port)
        let failure = try await error {
            try await AsyncSocket().connect(to: "mail.test", port: 25, proxy: proxy, timeout: timeout)
        }
        return (["127.0.0.1:\(peer.port)", object], failure)
    }

    // MARK: - Timeouts

    private static let times = [
        Way(.readTimeout) {
            let pair = try await SocketPair()
            return (["0.05 seconds"], try await error { _ = try await pair.client.read(timeout: .milliseconds(50)) })
        },
        Way(.writeTimeout) {
            let pair = try await SocketPair()
            let failure = try await error { try await pair.client.write(pattern(16 << 20), timeout: .milliseconds(50)) }
            return (["0.05 seconds"], failure)
        },
        Way(.idleTimeout) {
            let pair = try await SocketPair()
            let failure = try await error { for try await _ in pair.client.chunks(idleTimeout: .milliseconds(50)) {} }
            return (["0.05 seconds"], failure)
        },
        Way(.deadlineExceeded) {
            let pair = try await SocketPair()
            let failure = try await error { try await withDeadline(.milliseconds(50)) { _ = try await pair.client.read() } }
            return (["withDeadline"], failure)
        },
        Way(.handshakeTimeout) {
            let pair = try await SocketPair()
            var settings = try TestCertificates.client()
            settings.handshakeTimeout = .milliseconds(50)
            let failure = try await error { _ = try await pair.client.startTLS(settings: settings) }
            return (["0.05 seconds"], failure)
        },
        Way(.trustTimeout) {
            let pair = try await SocketPair()
            var settings = try TestCertificates.client()
            settings.trustTimeout = .milliseconds(50)
            let (client, server) = (pair.client, pair.server)
            let serving = Task { try await server.startTLS(settings: TestCertificates.server()) }
            let failure = try await error {
                _ = try await client.startTLS(settings: settings) { _ in
                    try await eventually("the time is over") { !client.isConnected }
                    return true
                }
            }
            _ = await serving.result
            return (["\"localhost\""], failure)
        },
    ]

    // MARK: - Limits

    private static let limits = [
        Way(.readMaxedOut) {
            let pair = try await SocketPair()
            try await pair.server.write("hello")
            let failure = try await error { _ = try await pair.client.read(until: AsyncSocket.crlf, maxLength: 4) }
            return (["within 4 bytes", "set maxLength"], failure)
        },
        Way(.readMaxedOut) {
            let pair = try await SocketPair()
            try await pair.server.write([0, 9])
            let failure = try await error { _ = try await pair.client.readFrame(LengthPrefixed<UInt16>(maxLength: 8)) }
            return (["9 bytes", "maxLength (8 bytes)"], failure)
        },
        Way(.malformedFrame) {
            let pair = try await SocketPair()
            try await pair.server.write("7")
            return (["\"7\" is not a version"], try await error { _ = try await pair.client.readFrame(NoFrames()) })
        },
        Way(.writeQueueFull) {
            let pair = try await SocketPair()
            pair.client.maximumPendingWriteBytes = 1000
            pair.client.write(pattern(16 << 20), withTimeout: -1)
            pair.client.write(pattern(1001), withTimeout: -1)
            return (["1000 bytes", "maximumPendingWriteBytes"], try await error { _ = try await pair.client.read() })
        },
        Way(.tooManyConnections) {
            let listener = try SocketListener(port: 0, interface: "127.0.0.1").listener
            return (["8000 connections", "maximumConnectionsPerSource"], listener.noteCrowd(of: try .loopback(port: 9)))
        },
        // Provoking it would take 30 seconds of signatures.
        Way(.tooManyHandshakes) { (["30", "private key"], AsyncSocketError.tooManyHandshakes) },
        Way(.startTLSFailed) {
            let (socket, peer) = try await connectedSocket([.send("-ERR busy\r\n")])
            let failure = try await error { try await socket.startTLS(as: .pop3, settings: TestCertificates.client()) }
            _ = try await peer.finish()
            return (["POP3", "\"-ERR busy\""], failure)
        },
        Way(.earlyPlaintext) {
            let (socket, peer) = try await connectedSocket([.send("hello")])
            _ = try await peer.finish()
            try await socket.hasBuffered(5)
            return (["5 bytes"], try await error { _ = try await socket.startTLS(settings: TestCertificates.client()) })
        },
    ]

    private struct NoFrames: Framing {
        var maximumFrameLength: Int { 8 }

        func decode(_ bytes: RawSpan) throws(AsyncSocketError) -> FrameDecoding<Int> {
            throw .malformedFrame("\"\(String(decoding: [bytes.unsafeLoad(as: UInt8.self)], as: UTF8.self))\" is not a version")
        }

        func encode(_ frame: Int, into bytes: inout Data) {}
    }

    // MARK: - Ends

    private static let ends =
        [false, true].map { isSecure in
            Way(.closedByPeer) {
                let pair = try await SocketPair(isSecure: isSecure)
                try await pair.server.write("hello")
                try await pair.server.close()
                return (["after 5 of 10 bytes"], try await error { _ = try await pair.client.read(exactly: 10) })
            }
        } + [
            Way(.truncated) {
                let (socket, peer) = try await connectedSocket([.send("hello"), .finish], isSecure: true)
                _ = try await peer.finish()
                return (["close_notify", "after 5 of 10 bytes"], try await error { _ = try await socket.read(exactly: 10) })
            },
            Way(.connectionReset) {
                let (socket, peer) = try await connectedSocket([.expect("hello"), .reset])
                try await socket.write("hello")
                _ = try await peer.finish()
                return (["reset by peer"], try await error { _ = try await socket.read() })
            },
            // The kernel would give up only after minutes.
            Way(.connectionTimedOut) {
                (["timed out"], AsyncSocketError(SystemError("recv", errno: ETIMEDOUT), operation: .read))
            },
        ]

    // MARK: - Transport

    private static let transport = [
        Way(.tls) {
            let pair = try await SocketPair()
            let server = pair.server
            let serving = Task { try await server.startTLS(settings: TestCertificates.server()) }
            let failure = try await error {
                _ = try await pair.client.startTLS(settings: TestCertificates.client(for: "other.test"))
            }
            _ = await serving.result
            return (["\"localhost\"", "\"other.test\"", "hostNameMismatch"], failure)
        },
        Way(.system) {
            let pair = try await SocketPair()
            let failure = try await error { try await pair.client.write(contentsOfFile: "/nowhere/file") }
            return (["\"/nowhere/file\": no such file or directory"], failure)
        },
        Way(.system) {
            let taken = try RawSocket.listening()
            let port = try taken.localPort
            let failure = try await error { _ = try SocketListener(port: port, interface: "127.0.0.1") }
            return (["127.0.0.1:\(port): address already in use"], failure)
        },
    ]
}
