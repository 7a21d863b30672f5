import AsyncSocketsTesting
import Foundation
import Logging
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A listener logs connections that fail.
@Suite(.timeLimit(.patient)) struct FailureLogTests {
    private struct Broken: Error {}

    /// The lines above level `info`, except lines about a listener without free descriptors.
    private func loud(_ test: String) -> [LogRecorder.Line] {
        LogRecorder.lines("test", test).filter { $0.level > .info && $0.message != "accepting paused" }
    }

    /// A connection sends plaintext instead of a ClientHello. Another fails in the body.
    private func failTwice(_ test: String, onError: (@Sendable (any Error, AsyncSocket) -> Void)? = nil) async throws {
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: TestCertificates.server(),
            configure: { $0.logger = LogRecorder.logger(of: test) })
        try await serving(listener, onError: onError, { _ in throw Broken() }) { _ in
            let stranger = AsyncSocket()
            try await stranger.connect(to: "127.0.0.1", port: listener.localPort)
            try await stranger.write("GET / HTTP/1.0\r\n\r\n")
            _ = try? await stranger.readToEnd()
            let client = AsyncSocket()
            try await client.connect(to: "127.0.0.1", port: listener.localPort, tls: .ofTests())
            _ = try? await client.readToEnd()
            try await eventually("both have failed") {
                LogRecorder.lines("test", test).filter { $0.metadata["stage"] != nil }.count == 2
            }
        }
    }

    @Test(.unmodifiedKernel) func withoutAHandlerFailuresAreLogged() async throws {
        try await failTwice("unhandled")
        let lines = loud("unhandled")
        #expect(lines.map(\.level) == [.notice, .warning])
        #expect(lines.map { "\($0.metadata["stage"] ?? "")" } == ["handshake", "body"])
        for line in lines { #expect("\(line.metadata["peer"] ?? "")".hasPrefix("127.0.0.1:")) }
        #expect("\(lines[0].metadata["error"] ?? "")".contains("notTLS"))
        #expect("\(lines[1].metadata["error"] ?? "")".contains("Broken"))
    }

    @Test func aHandlerTakesTheFailuresInstead() async throws {
        let errors = Findings<String>()
        try await failTwice("handled") { error, _ in errors.add("\(type(of: error))") }
        #expect(loud("handled").isEmpty)
        #expect(errors.all == ["AsyncSocketError", "Broken"])
    }

    /// One line per second and kind, with the number of omitted ones.
    @Test func aFloodOfFailuresIsCounted() throws {
        let log = FailureLog()
        let logger = LogRecorder.logger(of: "flood")
        let peer = try #require(SocketEndpoint(literal: "192.0.2.1", port: 7))
        let start = ContinuousClock.now
        for milliseconds in [0, 1, 999, 1_000, 1_500, 2_000, 9_000] {
            let now = start + .milliseconds(milliseconds)
            log.note(Broken(), of: peer, in: .handshake, isHandled: false, logger, at: now)
            log.note(
                AsyncSocketError.badParameter(.read, "b"), of: peer, in: .handshake, isHandled: milliseconds != 1_500, logger,
                at: now)
        }
        let omitted = loud("flood").map { $0.metadata["omitted"].map { "\($0)" } ?? "none" }
        // The other kind occurs once in between.
        #expect(omitted == ["none", "2", "none", "1", "none"])
        #expect(LogRecorder.lines("test", "flood").count == 14)
    }
}
