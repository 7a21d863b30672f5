import AsyncSocketsTesting
import Logging
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Loops over connections to a server.
@Suite(.timeLimit(.patient), .ownThreads) struct ReconnectingTests {
    private struct Enough: Error {}

    private let fast = BackOff(from: .milliseconds(1), to: .milliseconds(4))

    // MARK: - Connections

    @Test func eachConnectionEndsBeforeTheNextOne() async throws {
        let listener = try RawSocket.listening()
        var ends: [RawSocket] = []
        for try await socket in AsyncSocket.reconnecting(to: "127.0.0.1", port: try listener.localPort, backOff: fast) {
            let end = try listener.accepted()
            #expect(try ends.last?.receive().isEmpty != false)
            ends.append(end)
            try await socket.write("hello")
            #expect(try end.receive() == Array("hello".utf8))
            if ends.count == 3 { break }
        }
        // Exiting the loop closes its last connection.
        #expect(try ends.last?.receive().isEmpty == true)
    }

    @Test func anErrorOfTheBodyEndsTheConnection() async throws {
        let listener = try RawSocket.listening()
        await #expect(throws: Enough.self) {
            for try await _ in AsyncSocket.reconnecting(to: "127.0.0.1", port: try listener.localPort) { throw Enough() }
        }
        #expect(try listener.accepted().receive().isEmpty)
    }

    @Test func connectionsAreSecure() async throws {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: TestCertificates.server())
        let port = listener.localPort
        let tls = try TLSSettings.ofTests()
        try await serving(listener, { try await $0.echo() }) { _ in
            var count = 0
            for try await socket in AsyncSocket.reconnecting(to: "127.0.0.1", port: port, tls: tls, backOff: fast) {
                #expect(socket.isSecure)
                try await socket.write("hello\n")
                #expect(try await socket.readLine() == "hello")
                count += 1
                if count == 2 { break }
            }
        }
    }

    // MARK: - Failures

    @Test func failuresAreReportedAndTheTimeGrowsToItsLimit() async throws {
        let reserved = try RawSocket.listening()
        let port = try reserved.localPort
        let delays = Findings<Duration>()
        let codes = Findings<AsyncSocketError.Code?>()
        let sockets = AsyncSocket.reconnecting(
            to: "127.0.0.1", port: 1, backOff: fast,
            configure: { $0.proxy = .http(host: "127.0.0.1", port: port) },
            onFailure: { error, delay in
                delays.add(delay)
                codes.add((error as? AsyncSocketError)?.code)
                if delays.all.count == 6 { throw Enough() }
            })
        let refusing = Task(executorPreference: TestThreads()) {
            for _ in 0..<6 {
                let peer = try reserved.accepted()
                // Unread bytes would cause a reset.
                _ = try peer.receive(through: "\r\n\r\n")
                try peer.send("HTTP/1.1 503 Not Now\r\n\r\n")
            }
        }
        var iterator = sockets.makeAsyncIterator()
        await #expect(throws: Enough.self) { _ = try await iterator.next() }
        try await refusing.value
        #expect(codes.all.allSatisfy { $0 == .proxyRefused })
        for (delay, longest) in zip(delays.all, [1, 2, 4, 4, 4, 4].map { Duration.milliseconds($0) }) {
            #expect(delay >= longest / 2 && delay <= longest)
        }
        // The sequence has ended permanently.
        let further = try await iterator.next()
        #expect(further == nil)
    }

    @Test func itConnectsOnceTheServerIsThere() async throws {
        let first = try RawSocket.listening()
        let port = try first.localPort
        let secure = try TestCertificates.client()
        let failures = Findings<AsyncSocketError.Code?>()
        let sockets = AsyncSocket.reconnecting(
            to: "127.0.0.1", port: port, tls: secure, backOff: fast,
            onFailure: { error, _ in failures.add((error as? AsyncSocketError)?.code) })
        // A server that does not use TLS at first.
        let server = Task(executorPreference: TestThreads()) {
            let plain = try first.accepted()
            #expect(try plain.receive().first == 0x16)
            try plain.send("454 not now\r\n")
            // No connection stays open: this one is closed.
            while try !plain.receive().isEmpty {}
            return try first.accepted()
        }
        let next = Task {
            var iterator = sockets.makeAsyncIterator()
            return try await iterator.next()?.isSecure
        }
        let accepted = try await server.value
        let upgraded = try AsyncSocket(adopting: accepted.duplicate())
        try await upgraded.startTLS(settings: TestCertificates.server())
        #expect(try await next.value == true)
        #expect(failures.all == [.tls])
    }

    /// A server that accepts and closes immediately is not contacted without a delay.
    @Test func aShortConnectionMakesTheTimeGrow() async throws {
        var listener: RawSocket? = try RawSocket.listening()
        let port = try #require(try listener?.localPort)
        let delays = Findings<Duration>()
        let sockets = AsyncSocket.reconnecting(
            to: "127.0.0.1", port: port, backOff: BackOff(from: .milliseconds(1), to: .seconds(3_600)),
            onFailure: {
                delays.add($1)
                throw $0
            })
        let error = await #expect(throws: AsyncSocketError.self) {
            for try await _ in sockets { listener = nil }
        }
        #expect(error?.code == .connectFailed)
        #expect(delays.all.count == 1)
        // The second delay, not the first.
        #expect(delays.all.allSatisfy { $0 >= .milliseconds(1) && $0 <= .milliseconds(2) })
    }

    /// After a connection that lasted longer than the longest delay, the delays start again from the
    /// shortest.
    @Test func aLongConnectionMakesTheTimeShort() async throws {
        let listener = try RawSocket.listening()
        let port = try listener.localPort
        let delays = Findings<Duration>()
        let sockets = AsyncSocket.reconnecting(
            to: "127.0.0.1", port: 1, backOff: BackOff(from: .milliseconds(1), to: .milliseconds(64)),
            configure: { $0.proxy = .http(host: "127.0.0.1", port: port) },
            onFailure: { _, delay in
                delays.add(delay)
                if delays.all.count == 6 { throw Enough() }
            })
        let proxy = Task(executorPreference: TestThreads()) {
            for number in 0..<7 {
                let client = try listener.accepted()
                try client.send(number == 5 ? "HTTP/1.1 200 Good\r\n\r\n" : "HTTP/1.1 503 Not Now\r\n\r\n")
                while let bytes = try? client.receive(), !bytes.isEmpty {}
            }
        }
        await #expect(throws: Enough.self) {
            for try await _ in sockets {
                let start = ContinuousClock.now
                try await eventually("it has lasted") { start.duration(to: .now) > .milliseconds(65) }
            }
        }
        try await proxy.value
        // The delay after the connection was the first one.
        #expect(delays.all.count == 6 && delays.all[4] >= .milliseconds(8) && delays.all[5] <= .milliseconds(2))
    }

    @Test func theCallersErrorEndsItAtOnce() async throws {
        let failures = Findings<Duration>()
        for (host, port) in [("127.0.0.1", 0), ("127.0.0.1", 65_536), ("", 7)] {
            await #expect(throws: AsyncSocketError.self) {
                for try await _ in AsyncSocket.reconnecting(to: host, port: port, onFailure: { failures.add($1) }) {}
            }
        }
        await #expect(throws: AsyncSocketError.self) {
            var unusable = try TestCertificates.client()
            unusable.maximumCertificateChainLength = 0
            for try await _ in AsyncSocket.reconnecting(to: "127.0.0.1", port: 7, tls: unusable, onFailure: { failures.add($1) })
            {}
        }
        #expect(failures.all.isEmpty)
    }

    /// The name may exist later.
    @Test func aNameThatIsNotFoundIsLookedUpAgain() async {
        let codes = Findings<AsyncSocketError.Code?>()
        let sockets = AsyncSocket.reconnecting(
            to: "nonexistent.invalid", port: 7, backOff: fast,
            onFailure: { error, _ in
                codes.add((error as? AsyncSocketError)?.code)
                if codes.all.count == 2 { throw Enough() }
            })
        await #expect(throws: Enough.self) { for try await _ in sockets {} }
        #expect(codes.all == [.hostNotFound, .hostNotFound])
    }

    /// Retrying would not change such errors.
    @Test(arguments: [false, true]) func theProgramsOwnErrorEndsTheLoop(ofTrust: Bool) async throws {
        let peers = try (0..<2).map { _ in try ScriptedPeer.listening([.startTLS(try TestCertificates.server())]) }
        let failures = Findings<Duration>()
        var settings = try TestCertificates.client()
        settings.trustEvaluation = .manual
        let sockets = AsyncSocket.reconnecting(
            to: "127.0.0.1", port: peers[0].port, tls: settings, trust: { _ in throw Enough() }, backOff: fast,
            configure: { _ in if !ofTrust { throw Enough() } }, onFailure: { failures.add($1) })
        await #expect(throws: Enough.self) { for try await _ in sockets {} }
        #expect(failures.all.isEmpty)
        for peer in peers { peer.stop() }
    }

    /// An `AsyncSocketError` thrown by `configure` or `trust` also ends the loop, even if the loop would
    /// retry after the same error of a connection.
    @Test(arguments: [false, true]) func aSocketErrorOfTheProgramEndsIt(ofTrust: Bool) async throws {
        let peer = try ScriptedPeer.listening([.startTLS(try TestCertificates.server())])
        let (failures, error) = (Findings<Duration>(), AsyncSocketError.closedByPeer)
        let sockets = AsyncSocket.reconnecting(
            to: "127.0.0.1", port: peer.port, tls: try TestCertificates.client(), trust: { _ in throw error }, backOff: fast,
            configure: { _ in if !ofTrust { throw error } },
            onFailure: { _, delay in
                failures.add(delay)
                throw Enough()
            })
        let thrown = await #expect(throws: AsyncSocketError.self) { for try await _ in sockets {} }
        #expect(thrown?.code == error.code && failures.all.isEmpty)
        peer.stop()
    }

    /// Without `onFailure`, each kind of error is logged: here an untrusted certificate, and a port without a
    /// listener.
    @Test func failuresWithoutAHandlerAreLogged() async throws {
        let name = "failuresWithoutAHandlerAreLogged"
        let stranger = try TestCertificates.stranger.issue(.server(names: ["localhost"])).identity()
        let peer = try ScriptedPeer.listening([.startTLS(.server(identity: stranger))])
        let port = peer.port
        let loop = Task {
            for try await _ in AsyncSocket.reconnecting(
                to: "127.0.0.1", port: port, tls: try TestCertificates.client(), backOff: fast,
                configure: { $0.logger = LogRecorder.logger(of: name) })
            {}
        }
        try await eventually("both are logged") {
            let lines = LogRecorder.lines("test", name).filter { $0.level == .warning && $0.metadata["stage"] == "connecting" }
            let errors = lines.map { "\($0.metadata["error"] ?? "")" }
            return errors.contains { $0.contains("unknownIssuer") } && errors.contains { $0.contains("connectFailed") }
        }
        loop.cancel()
        #expect(await loop.outcome == .cancelled)
        peer.stop()
    }

    /// The program's `onFailure` does not return.
    @Test(arguments: [false, true]) func aHangingOnFailureDoesNotBlockTheLoop(isCancelled: Bool) async throws {
        let refusing = try RawSocket.refusing()
        let port = try refusing.localPort
        let (begun, release) = (try TestSignal(), try TestSignal())
        let loop = Task {
            try await withDeadline(isCancelled ? .patient : .seconds(2)) {
                for try await _ in AsyncSocket.reconnecting(
                    to: "127.0.0.1", port: port, backOff: fast,
                    onFailure: { _, _ in
                        begun.fire()
                        try await Task.detached { try await release.wait(within: .patient) }.value
                    })
                {}
            }
        }
        try await begun.wait(within: .patient)
        if isCancelled { loop.cancel() }
        #expect(await loop.outcome == (isCancelled ? .cancelled : .failed(.deadlineExceeded)))
        release.fire()
    }

    // MARK: - Cancellation

    @Test func aCancelledLoopWaitsNoLonger() async throws {
        let listener = try RawSocket.listening()
        let port = try listener.localPort
        let failures = Findings<Duration>()
        let loop = Task {
            for try await _ in AsyncSocket.reconnecting(
                to: "127.0.0.1", port: port, tls: try TestCertificates.client(),
                backOff: BackOff(from: .seconds(3_600), to: .seconds(3_600)), onFailure: { failures.add($1) })
            {}
        }
        try listener.accepted().send("454 not now\r\n")
        try await eventually("it has failed") { failures.all.count == 1 }
        loop.cancel()
        #expect(await loop.outcome == .cancelled)
    }

    @Test func aCancelledAttemptIsNoFailure() async throws {
        let listener = try RawSocket.listening()
        let port = try listener.localPort
        let failures = Findings<Duration>()
        let loop = Task {
            for try await _ in AsyncSocket.reconnecting(
                to: "127.0.0.1", port: port, tls: try TestCertificates.client(), onFailure: { failures.add($1) })
            {}
        }
        let end = try listener.accepted()
        #expect(try end.receive().first == 0x16)
        loop.cancel()
        #expect(await loop.outcome == .cancelled)
        while try !end.receive().isEmpty {}
        #expect(failures.all.isEmpty)
    }

    /// While it is waiting, and while it is connecting.
    @Test(arguments: [false, true]) func aDeadlineEndsTheLoop(whileItConnects: Bool) async throws {
        let listener = try RawSocket.listening()
        let port = try listener.localPort
        let failures = Findings<Duration>()
        let loop = Task {
            try await withDeadline(.milliseconds(whileItConnects ? 100 : 2_000)) {
                for try await _ in AsyncSocket.reconnecting(
                    to: "127.0.0.1", port: port, tls: try TestCertificates.client(),
                    backOff: BackOff(from: .seconds(3_600), to: .seconds(3_600)), onFailure: { failures.add($1) })
                {}
            }
        }
        if !whileItConnects { try listener.accepted().send("454 not now\r\n") }
        #expect(await loop.outcome == .failed(.deadlineExceeded))
        #expect(failures.all.count <= (whileItConnects ? 0 : 1))
    }

    // MARK: - Delays

    @Test func aBackOffIsWithinItsBounds() {
        #expect(BackOff(from: .zero, to: .zero).minimum == .milliseconds(1))
        #expect(BackOff(from: .seconds(5), to: .seconds(1)).maximum == .seconds(5))
        #expect(BackOff(from: .seconds(Int64.max), to: .seconds(Int64.max)).minimum == .seconds(86_400))
        let standard = BackOff.standard
        for (failures, longest) in [(1, 0.5), (2, 1), (3, 2), (7, 32), (8, 60), (9, 60), (Int.max / 2, 60)] {
            let delay = standard.delay(afterFailures: failures)
            #expect(delay >= .seconds(longest / 2) && delay <= .seconds(longest), "\(failures): \(delay)")
        }
    }

    /// When a server restarts, some of a thousand clients reconnect in each quarter of the delay.
    @Test func clientsDoNotComeBackTogether() {
        let delays = (0..<1_000).map { _ in BackOff(from: .seconds(8), to: .seconds(8)).delay(afterFailures: 1) }
        for begin in 4..<8 { #expect(delays.contains { $0 >= .seconds(begin) && $0 < .seconds(begin + 1) }) }
    }
}
