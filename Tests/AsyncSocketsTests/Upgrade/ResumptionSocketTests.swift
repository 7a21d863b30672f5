import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Session resumption, server names and reloading over real sockets.
@Suite(.timeLimit(.patient)) struct ResumptionSocketTests {
    private func listener(_ settings: TLSServerSettings) throws -> SocketListener {
        try SocketListener(port: 0, interface: "127.0.0.1", tls: settings)
    }

    private func listener(_ change: (inout TLSServerSettings) throws -> Void = { _ in }) throws -> SocketListener {
        var settings = try TestCertificates.server()
        settings.sessionTickets = .issued(2)
        try change(&settings)
        return try listener(settings)
    }

    /// Exchanges data and returns the session at the end of the connection.
    private func converse(_ port: UInt16, _ settings: TLSClientSettings) async throws -> TLSSession {
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: port, tls: settings) { socket in
            try await socket.write("hello\n")
            #expect(try await socket.readLine() == "hello")
            return try #require(socket.tlsSession)
        }
    }

    @Test(arguments: TLSProtocolVersion.tested) func clientsResumeByThemselves(_ version: TLSProtocolVersion) async throws {
        let listener = try listener()
        let store = TLSInMemorySessionStore()
        var settings = try TestCertificates.client().only(version)
        settings.resumption = .store(store)
        let client = settings
        try await serving(listener, { try await $0.echo() }) { _ in
            var sessions: [TLSSession] = []
            for _ in 0..<4 { sessions.append(try await converse(listener.localPort, client)) }
            #expect(sessions.map(\.isResumed) == [false, true, true, true])
            #expect(store.count > 0)
            var none = client
            none.resumption = .none
            #expect(try await converse(listener.localPort, none).isResumed == false)
        }
    }

    @Test(arguments: TLSProtocolVersion.tested) func thoseOfTheProcessAreTheDefault(_ version: TLSProtocolVersion) async throws {
        let listener = try listener()
        let settings = try TestCertificates.client().only(version)
        #expect(settings.resumption == .inMemory)
        try await serving(listener, { try await $0.echo() }) { _ in
            let sessions = [try await converse(listener.localPort, settings), try await converse(listener.localPort, settings)]
            #expect(sessions.map(\.isResumed) == [false, true])
        }
    }

    /// The tickets are not sent together with data, because the callback closes the connection.
    @Test(arguments: [CloseIntent.afterWrites, []]) func aServerThatClosesInItsCallbackSendsTickets(_ intent: CloseIntent)
        async throws
    {
        var settings = try TestCertificates.server()
        settings.sessionTickets = .issued(2)
        var client = try TestCertificates.client()
        client.resumption = .store(TLSInMemorySessionStore())
        let server = Recorder { socket, told in
            guard case .secured = told else { return }
            if intent.isEmpty { socket.closeWriteStream() } else { socket.disconnectAfterWriting() }
        }
        let listener = try RawSocket.listening()
        for round in 0..<2 {
            let socket = AsyncSocket()
            try await socket.connect(to: "127.0.0.1", port: listener.localPort)
            let accepted = try AsyncSocket(adopting: listener.accepted().duplicate(), inlineDelegate: server)
            try accepted.beginTLS(settings: settings)
            let session = try await socket.startTLS(settings: client)
            #expect(try await socket.read() == nil)
            #expect(session.isResumed == (round > 0))
            try await socket.close()
            accepted.disconnect()
        }
    }

    /// As in FTP, the data connection resumes the session of the control connection.
    @Test(arguments: TLSProtocolVersion.tested) func aDataConnectionResumesTheControlConnection(_ version: TLSProtocolVersion)
        async throws
    {
        let keys = try keyFile()
        // Both connections use the same identity.
        var server = try TestCertificates.server()
        server.sessionTickets = .issued(2, keys: keys)
        let (control, data) = (try listener(server), try listener(server))
        var settings = try TestCertificates.client().only(version)
        settings.resumption = .store(TLSInMemorySessionStore())
        let client = settings
        try await serving(control, { try await $0.echo() }) { _ in
            try await serving(data, { try await $0.echo() }) { _ in
                let session = try #require(try await converse(control.localPort, client).resumable)
                for _ in 0..<3 {
                    var resuming = client
                    resuming.resumption = .session(session)
                    #expect(try await converse(data.localPort, resuming).isResumed)
                }
                #expect(try await converse(data.localPort, client).isResumed == false)
            }
        }
    }

    private func keyFile() throws -> TLSTicketKeyFile {
        let folder = try TemporaryFolder()
        let lines = (1...3).map { Data(repeating: $0, count: 80).base64EncodedString() }
        try Data(lines.joined(separator: "\n").utf8).write(to: folder.url("keys"))
        return try TLSTicketKeyFile(path: folder.path("keys"))
    }

    /// With a delegate, trust is also evaluated for a resumed session.
    @Test(arguments: TLSProtocolVersion.tested) func aDelegateDecidesAboutAResumedSessionToo(_ version: TLSProtocolVersion)
        async throws
    {
        let listener = try listener()
        var settings = try TestCertificates.client().only(version)
        settings.resumption = .store(TLSInMemorySessionStore())
        settings.trustEvaluation = .delegate
        let client = settings
        try await serving(listener, { try await $0.echo() }) { _ in
            for attempt in 0..<3 {
                let socket = AsyncSocket()
                try await socket.connect(to: "127.0.0.1", port: listener.localPort)
                let questions = Locked<[PeerTrust]>([])
                let upgrade = await outcome {
                    try await socket.startTLS(settings: client) { trust in
                        questions.withLock { $0.append(trust) }
                        return attempt < 2
                    }
                }
                #expect(questions.withLock { $0.count } == 1 && questions.withLock { $0.first?.verdict } == .trusted)
                #expect(questions.withLock { $0.first?.leaf?.dnsNames } == ["localhost"])
                guard attempt < 2 else {
                    #expect(upgrade == .failed(.tls))
                    continue
                }
                #expect(upgrade == .served && socket.tlsSession?.isResumed == (attempt == 1))
                try await socket.write("hello\n")
                #expect(try await socket.readLine() == "hello")
                try await socket.close()
            }
        }
    }

    // MARK: - Server names

    @Test(arguments: [false, true]) func aListenerSelectsSettingsByServerName(byFunction: Bool) async throws {
        let (one, two) = (try TestCertificates.server(for: ["one.test"]), try TestCertificates.server(for: ["two.test"]))
        let listener = try listener { settings in
            settings.serverNames =
                byFunction
                ? TLSServerNames { hello in ["one.test": one, "two.test": two][hello.serverName ?? ""] }
                : try TLSServerNames(["one.test": one, "two.test": two], unknownName: .reject)
        }
        try await serving(listener, { try await $0.echo() }) { _ in
            for name in ["one.test", "two.test"] {
                let session = try await converse(listener.localPort, TestCertificates.client(for: name))
                #expect(session.peerCertificates.first?.dnsNames == [name])
            }
            do {
                _ = try await converse(listener.localPort, TestCertificates.client(for: "three.test"))
                Issue.record("served")
            } catch let error as AsyncSocketError {
                #expect(error.tls?.alert == .unrecognizedName)
            }
        }
    }

    /// An upgrade with a delegate.
    @Test func aDelegatesServerChoosesByName() async throws {
        let one = try TestCertificates.server(for: ["one.test"])
        var settings = try TestCertificates.server()
        settings.serverNames = TLSServerNames { $0.serverName == "one.test" ? one : nil }
        let link = try await Link.make()
        try await link.secure(client: TestCertificates.client(for: "one.test"), server: settings)
        #expect(link.client.tlsSession?.peerCertificates.first?.dnsNames == ["one.test"])
        #expect(link.server.tlsSession?.serverName == "one.test")
    }

    /// The listener's trust function also applies to its server names, even if their settings do not require
    /// it.
    @Test(arguments: TLSProtocolVersion.tested, [false, true])
    func aNameDoesNotSkipTheDecision(_ version: TLSProtocolVersion, byFunction: Bool) async throws {
        var asking = try TestCertificates.server(for: ["one.test"])
        asking.clients = .certificates(.required)
        asking.trustRoots = try TestCertificates.authority.roots
        let one = asking
        var settings = try TestCertificates.server()
        settings.serverNames = try byFunction ? TLSServerNames { _ in one } : TLSServerNames(["one.test": one])
        let asked = Findings<String>()
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: settings,
            trust: { trust in
                asked.add(trust.leaf?.commonName ?? "")
                return trust.leaf?.commonName == "alice"
            })
        try await serving(listener, { try await $0.echo() }) { _ in
            for name in ["alice", "mallory"] {
                var client = try TestCertificates.client(for: "one.test").only(version)
                client.resumption = .none
                client.identity = try TestCertificates.authority.issue(.client(commonName: name), signedBy: .root).identity()
                let settings = client
                let isServed = await outcome { _ = try await converse(listener.localPort, settings) } == .served
                #expect(isServed == (name == "alice"))
            }
        }
        #expect(asked.all == ["alice", "mallory"])
    }

    /// A function that never returns does not keep a connection open.
    @Test func theHandshakeTimeoutIncludesTheServerNameClosure() async throws {
        let asked = Findings<Bool>()
        var settings = try TestCertificates.server()
        settings.serverNames = TLSServerNames { _ in
            asked.add(true)
            let (stream, continuation) = AsyncStream<Void>.makeStream()
            for await _ in stream {}
            withExtendedLifetime(continuation) {}
            return nil
        }
        let client = try TestCertificates.client()
        // On a busy machine, the client may be too late for the shorter limits.
        for limit in [0.2, 3, 30] where asked.all.isEmpty {
            let peer = try await SocketPair()
            settings.handshakeTimeout = .seconds(limit)
            let server = settings
            async let upgrade = outcome { try await peer.server.startTLS(settings: server) }
            let failed = await outcome { try await peer.client.startTLS(settings: client) }
            #expect(await upgrade == .failed(.handshakeTimeout))
            #expect(failed != .served && (failed == .failed(.tls) || asked.all.isEmpty))
        }
        #expect(!asked.all.isEmpty)
    }

    // MARK: - Many handshakes

    /// Peers that never finish use all permits. The next one is served when a permit is free again.
    @Test func simultaneousHandshakesAreLimited() async throws {
        let listener = try listener()
        #expect(listener.maximumHandshakes == 4096)
        listener.maximumHandshakes = 2
        var client = try TestCertificates.client()
        client.handshakeTimeout = .seconds(0.3)
        let (impatient, patient) = (client, try TestCertificates.client())
        try await serving(listener, { try await $0.echo() }) { _ in
            let silent = try (0..<2).map { _ in try RawSocket.connected(to: .loopback(port: listener.localPort)) }
            try await eventually("both have a place") { listener.preparation.slots.takenCount == 2 }
            #expect(await outcome { try await converse(listener.localPort, impatient) } == .failed(.handshakeTimeout))
            let served = Task { try await converse(listener.localPort, patient) }
            listener.maximumHandshakes = 4
            _ = try await served.value
            withExtendedLifetime(silent) {}
        }
    }

    /// Only a few are waiting, however many have come and gone.
    @Test func placesTakeNoMemoryForThoseWhoHaveLeft() async throws {
        let slots = HandshakeSlots(limit: 1)
        await slots.enter()
        var waiting = [Task { await slots.enter() }]
        try await eventually("one task waits") { slots.waitingCount == 1 }
        for _ in 0..<500 {
            waiting.append(Task { await slots.enter() })
            try await eventually("two tasks wait") { slots.waitingCount == 2 }
            slots.leave()
            await waiting.removeFirst().value
            #expect(slots.waitingCount == 1 && Contents(of: slots)["state.turns.elements"] <= 64)
        }
        slots.leave()
        await waiting.removeFirst().value
        #expect(slots.takenCount == 1 && slots.waitingCount == 0)
    }

    @Test func aShutdownDoesNotWaitForAHandshakePermit() async throws {
        let listener = try listener { $0.handshakeTimeout = .patient * 2 }
        listener.maximumHandshakes = 1
        let silent = try (0..<5).map { _ in try RawSocket.connected(to: .loopback(port: listener.localPort)) }
        let run = Task { try await listener.run { _ in } }
        try await eventually("one has the place") { listener.preparation.slots.takenCount == 1 }
        let start = ContinuousClock.now
        await listener.close(timeout: .zero)
        try await run.value
        #expect(start.duration(to: .now) < .patient)
        withExtendedLifetime(silent) {}
    }

    // MARK: - New settings

    @Test func replacedSettingsApplyToTheNextConnection() async throws {
        let listener = try listener()
        let next = try TestCertificates.server(for: ["localhost", "next.test"])
        try await serving(listener, { try await $0.echo() }) { _ in
            var client = try TestCertificates.client()
            client.resumption = .none
            #expect(try await converse(listener.localPort, client).peerCertificates.first?.dnsNames == ["localhost"])
            // Invalid settings have no effect.
            var unusable = next
            unusable.maximumCertificateChainLength = 0
            #expect(throws: AsyncSocketError.self) { try listener.replaceTLS(unusable) }
            #expect(try await converse(listener.localPort, client).peerCertificates.first?.dnsNames == ["localhost"])
            try listener.replaceTLS(next)
            #expect(
                try await converse(listener.localPort, client).peerCertificates.first?.dnsNames == ["localhost", "next.test"])
        }
    }

    @Test func noConnectionFailsDuringReloads() async throws {
        let settings = try (0..<4).map { try TestCertificates.server(for: ["localhost", "number\($0).test"]) }
        let listener = try listener()
        var client = try TestCertificates.client()
        client.resumption = .none
        let tls = client
        try await serving(listener, { try await $0.echo() }) { _ in
            try await withThrowingTaskGroup { group in
                for _ in 0..<4 {
                    group.addTask { for _ in 0..<50 { _ = try await converse(listener.localPort, tls) } }
                }
                group.addTask {
                    for number in 0..<200 {
                        try listener.replaceTLS(settings[number % 4])
                        await Task.yield()
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    @Test func changedCertificateFilesAreReloaded() async throws {
        let folder = try TemporaryFolder()
        let (certificate, key) = (folder.path("server.pem"), folder.path("server.key"))
        func write(_ name: String) throws {
            let issued = try TestCertificates.authority.issue(.server(names: ["localhost", name]), signedBy: .root)
            try Data(issued.certificatePEM.utf8).write(to: folder.url("server.pem"), options: .atomic)
            try Data(issued.privateKeyPEM.utf8).write(to: folder.url("server.key"), options: .atomic)
        }
        @Sendable func read() throws -> TLSServerSettings {
            .server(identity: try TLSIdentity(certificateFile: certificate, privateKeyFile: key))
        }
        try write("first.test")
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: read(), configure: { $0.logger = LogRecorder.logger(of: "files") })
        var client = try TestCertificates.client()
        client.resumption = .none
        let tls = client
        @Sendable func name() async throws -> String? {
            try await converse(listener.localPort, tls).peerCertificates.first?.dnsNames.last
        }
        let errors = Findings<String>()
        try await serving(listener, { try await $0.echo() }) { _ in
            let watching = Task {
                try await listener.reloadTLS(
                    from: [certificate, key], every: .milliseconds(5), onError: { errors.add("\($0)") }, read)
            }
            #expect(try await name() == "first.test")
            try Data("nonsense".utf8).write(to: folder.url("server.pem"), options: .atomic)
            try await eventually("the error is told") { !errors.all.isEmpty }
            #expect(try await name() == "first.test")
            try write("second.test")
            try await eventually("the new certificate is shown") { try await name() == "second.test" }
            watching.cancel()
            _ = await watching.result
        }
        let refusals = LogRecorder.warnings(of: "files").filter { $0.message == "TLS settings not replaced" }
        #expect(refusals.count == errors.all.count)
    }

    /// Changes since the listener was created are detected.
    @Test func reloadTLSReadsTheSettingsWhenItStarts() async throws {
        let names = Findings<String>()
        names.add("first.test")
        @Sendable func read() throws -> TLSServerSettings {
            try TestCertificates.server(for: ["localhost", names.all.last ?? ""])
        }
        let listener = try listener(read())
        names.add("second.test")
        var client = try TestCertificates.client()
        client.resumption = .none
        let tls = client
        try await serving(listener, { try await $0.echo() }) { _ in
            let watching = Task { try await listener.reloadTLS(from: [], every: .seconds(3600), read) }
            var name: String?
            for _ in 0..<1000 where name != "second.test" {
                name = try await converse(listener.localPort, tls).peerCertificates.first?.dnsNames.last
            }
            #expect(name == "second.test")
            watching.cancel()
            _ = await watching.result
        }
    }
}
