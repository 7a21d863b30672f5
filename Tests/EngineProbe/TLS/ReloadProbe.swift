internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Dispatch
internal import Foundation
internal import Glibc
internal import SocketBuffers
internal import Synchronization

/// A listener reloads identities, roots and ticket keys while clients connect. No connection fails, and the
/// memory of the old settings is released.
///
/// Half of the reloads are calls, half are file changes. Each client performs full handshakes in TLS 1.2 and
/// 1.3 with certificates on both sides, and resumes a session after every fourth.
final class ReloadProbe: Sendable {
    private static let clientCount = 8
    private static let connectionsPerReload = 100
    /// In KiB. 800 leaked contexts would need more.
    private static let growthLimit = 16 << 10

    private let connectionCount: Int
    private let authorities: [CertificateAuthority]
    private let clients: [TLSClientSettings]
    private let folder: URL
    private let listener: SocketListener

    private let begun = Atomic(0)
    private let full = Locked([TLSProtocolVersion: Int]())
    private let resumed = Atomic(0)
    private let identities = Locked(Set<[UInt8]>())
    private let failures = Locked([String]())
    /// In KiB, after every tenth of the connections.
    private let memory = Locked([Int]())
    private let unreadable = Atomic(0)
    private let loadedFiles = Locked(Set<String>())
    private let loads = AsyncStream<Void>.makeStream()
    private let turns = AsyncStream<Int>.makeStream()

    /// - Parameter connectionCount: The number of full handshakes. Every hundredth one is followed by a
    ///   reload.
    static func run(_ connectionCount: Int) throws {
        let done = Mailbox<Result<Void, any Error>>()
        let probe = try ReloadProbe(connectionCount)
        defer { try? FileManager.default.removeItem(at: probe.folder) }
        Task {
            do {
                try await probe.run()
                done.put(.success(()))
            } catch {
                done.put(.failure(error))
            }
        }
        while true {
            // A large run takes longer than a mailbox waits, but there must be progress every minute.
            let before = probe.begun.load(ordering: .relaxed)
            if let result = try? done.next() { return try result.get() }
            guard probe.begun.load(ordering: .relaxed) > before else { throw ProbeFailure(description: "nothing goes on") }
        }
    }

    private init(_ connectionCount: Int) throws {
        self.connectionCount = connectionCount
        authorities = try (0..<4).map { try CertificateAuthority(name: "Authority \($0)") }
        folder = FileManager.default.temporaryDirectory.appendingPathComponent("ReloadProbe-\(getpid())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        try Self.writeKeys(to: folder)
        clients = try Self.clients(of: authorities)
        try Self.writeIdentity(0, authorities, to: folder)
        listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: Self.settings(in: folder, roots: authorities))
    }

    // MARK: - The run

    private func run() async throws {
        let start = ContinuousClock.now
        let serving = Task {
            try await listener.run(onError: { [self] error, _ in fail("server: \(error)") }) { socket in
                while let line = try await socket.readLine() { try await socket.write(line + "\n") }
            }
        }
        let watching = Task { try await watch() }
        let reloading = Task { try await reload() }
        await withTaskGroup { group in
            for number in 0..<Self.clientCount { group.addTask { [self] in await connect(number) } }
        }
        turns.continuation.finish()
        let reloads = try await reloading.value
        await listener.close()
        try await serving.value
        watching.cancel()
        _ = await watching.result
        try report(reloads, start.duration(to: .now))
    }

    private func report(_ reloads: (calls: Int, files: Int), _ time: Duration) throws {
        let versions = full.withLock { $0.sorted { $0.key < $1.key }.map { "\($0.value) in \($0.key)" }.joined(separator: ", ") }
        let seen = identities.withLock { $0.count }
        print(
            "\(versions), \(resumed.load(ordering: .relaxed)) resumed; \(reloads.calls) reloads by call, \(reloads.files) by files"
                + " (\(unreadable.load(ordering: .relaxed)) times only half of them was there); \(seen) identities seen; \(time)")
        let memory = memory.withLock { $0 } + [Self.residentKilobytes]
        print("resident memory in KiB: \(memory)")
        let failures = failures.withLock { $0 }
        guard failures.isEmpty else {
            throw ProbeFailure(description: "\(failures.count) failures: \(failures.prefix(5))")
        }
        try check(memory, reloads.calls + reloads.files)
        // There may be no client between two reloads in quick succession.
        guard seen > (reloads.calls + reloads.files) / 2 else { throw ProbeFailure(description: "few identities were seen") }
        guard resumed.load(ordering: .relaxed) > connectionCount / 20 else {
            throw ProbeFailure(description: "few sessions were resumed")
        }
    }

    /// After 200 reloads the cache of contexts is full, and each new context must replace an old one.
    private func check(_ memory: [Int], _ reloadCount: Int) throws {
        guard reloadCount >= 900, let last = memory.last else { return }
        guard last - memory[2] < Self.growthLimit else { throw ProbeFailure(description: "the memory grows: \(memory) KiB") }
    }

    private func fail(_ failure: String) {
        failures.withLock { $0.append(failure) }
    }

    // MARK: - Clients

    private func connect(_ number: Int) async {
        let store = TLSInMemorySessionStore()
        while true {
            let turn = begun.add(1, ordering: .relaxed).oldValue
            guard turn < connectionCount else { return }
            if turn % Self.connectionsPerReload == 0 { turns.continuation.yield(turn / Self.connectionsPerReload) }
            if turn % max(1, connectionCount / 10) == 0 { memory.withLock { $0.append(Self.residentKilobytes) } }
            var settings = clients[turn % clients.count]
            // A client that stores sessions reconnects immediately. The others start without a session.
            let comesBack = turn % 4 == 0
            settings.resumption = comesBack ? .store(store) : .none
            if comesBack { store.removeAll() }
            await converse(settings, mayResume: false)
            if comesBack { await converse(settings, mayResume: true) }
        }
    }

    private func converse(_ settings: TLSClientSettings, mayResume: Bool) async {
        do {
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, tls: settings) { [self] socket in
                try await socket.write("hello\n")
                guard try await socket.readLine() == "hello", let session = socket.tlsSession else {
                    throw ProbeFailure(description: "another answer")
                }
                if let certificate = session.peerCertificates.first {
                    _ = identities.withLock { $0.insert(certificate.sha256Fingerprint) }
                }
                if session.isResumed {
                    resumed.add(1, ordering: .relaxed)
                } else {
                    full.withLock { $0[session.protocolVersion, default: 0] += 1 }
                }
                if session.isResumed, !mayResume { throw ProbeFailure(description: "resumed without a session") }
            }
        } catch {
            fail("client: \(error)")
        }
    }

    /// Clients for TLS 1.2 and 1.3. Each trusts every CA, and has a certificate from the first CA, which all
    /// servers trust.
    private static func clients(of authorities: [CertificateAuthority]) throws -> [TLSClientSettings] {
        let roots = try authorities.map { try TLSCertificate(pem: $0.rootPEM) }
        return try [TLSProtocolVersion.tls12, .tls13, .tls13].map { version in
            var settings = TLSSettings.client(serverName: "localhost")
            settings.trustRoots = .certificates(roots)
            settings.identity = try authorities[0].issue(.client(commonName: "Ada")).identity()
            (settings.minimumVersion, settings.maximumVersion) = (version, version)
            return settings
        }
    }

    // MARK: - Reloads

    /// Returns settings that refer only to files.
    private static func settings(in folder: URL, roots authorities: [CertificateAuthority]) throws -> TLSServerSettings {
        let identity = try TLSIdentity(
            certificateFile: folder.appendingPathComponent("server.pem").path,
            privateKeyFile: folder.appendingPathComponent("server.key").path)
        return try settings(identity, authorities, TLSTicketKeyFile(path: folder.appendingPathComponent("keys").path))
    }

    private static func settings(
        _ identity: TLSIdentity, _ authorities: [CertificateAuthority], _ keys: any TLSTicketKeySource
    ) throws -> TLSServerSettings {
        var settings = TLSSettings.server(identity: identity)
        settings.clients = .certificates(.required)
        settings.sessionTickets = .issued(1, keys: keys)
        settings.trustRoots = .certificates(try authorities.map { try TLSCertificate(pem: $0.rootPEM) })
        return settings
    }

    /// The roots for client certificates: always the first CA, and the others in turn.
    private func roots(_ number: Int) -> [CertificateAuthority] {
        [authorities[0]] + authorities.dropFirst().prefix(number % 4)
    }

    /// Reloads alternately with a call and through files.
    private func reload() async throws -> (calls: Int, files: Int) {
        var (calls, files) = (0, 0)
        var loaded = loads.stream.makeAsyncIterator()
        for await turn in turns.stream where turn > 0 {
            if turn % 2 == 0 {
                let issued = try authorities[turn % 4].issue(.server(names: ["localhost"]))
                let keys = FixedKeys(try TLSTicketKey(bytes: Self.randomBytes()))
                try listener.replaceTLS(Self.settings(issued.identity(), roots(turn), keys))
                calls += 1
            } else {
                try Self.writeKeys(to: folder)
                try Self.writeIdentity(turn, authorities, to: folder)
                let written = try String(contentsOf: folder.appendingPathComponent("server.pem"), encoding: .utf8)
                while !loadedFiles.withLock({ $0.contains(written) }) { _ = await loaded.next() }
                files += 1
            }
        }
        return (calls, files)
    }

    private func watch() async throws {
        let paths = ["server.pem", "server.key", "keys"].map { folder.appendingPathComponent($0).path }
        try await listener.reloadTLS(
            from: paths, every: .milliseconds(2), onError: { [self] _ in unreadable.add(1, ordering: .relaxed) }
        ) { [self] in
            let text = try String(contentsOfFile: paths[0], encoding: .utf8)
            let number = loadedFiles.withLock { $0.count }
            let settings = try Self.settings(in: folder, roots: roots(number))
            loadedFiles.withLock { _ = $0.insert(text) }
            loads.continuation.yield()
            return settings
        }
    }

    private static func writeIdentity(_ number: Int, _ authorities: [CertificateAuthority], to folder: URL) throws {
        let issued = try authorities[number % authorities.count].issue(.server(names: ["localhost"]))
        let chain = issued.certificatePEM + authorities[number % authorities.count].intermediatePEM
        try Data(chain.utf8).write(to: folder.appendingPathComponent("server.pem"), options: .atomic)
        try Data(issued.privateKeyPEM.utf8).write(to: folder.appendingPathComponent("server.key"), options: .atomic)
    }

    /// Writes three keys in the format of `TLSTicketKeyFile`.
    private static func writeKeys(to folder: URL) throws {
        let lines = (0..<3).map { _ in Data(randomBytes()).base64EncodedString() }
        try Data(lines.joined(separator: "\n").utf8).write(to: folder.appendingPathComponent("keys"), options: .atomic)
    }

    private static func randomBytes() -> [UInt8] {
        (0..<80).map { _ in .random(in: 0...255) }
    }

    private final class FixedKeys: TLSTicketKeySource {
        let keys: TLSTicketKeys

        init(_ key: TLSTicketKey) {
            keys = TLSTicketKeys(current: key)
        }
    }

    // MARK: - Memory

    private static var residentKilobytes: Int {
        let fields = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ")
        return (fields?.dropFirst().first.flatMap { Int($0) } ?? 0) * sysconf(CInt(_SC_PAGESIZE)) >> 10
    }
}
