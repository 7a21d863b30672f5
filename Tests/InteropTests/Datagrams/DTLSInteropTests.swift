import AsyncSockets
import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// DTLS 1.2 with the programs of OpenSSL, GnuTLS and wolfSSL, directly and over relays that drop, duplicate,
/// delay and corrupt datagrams.
@Suite(.timeLimit(.patient)) struct DTLSInteropTests {
    /// A link between two programs.
    struct Link: CustomTestStringConvertible, Sendable {
        let part: Int
        let corrupts: Bool

        /// Whether a handshake may fail, but not silently. Messages are not authenticated before its end, and
        /// the peers wait a second, two, four and so on for lost messages.
        var mayFail: Bool { corrupts || part == 30 }
        var harm: DatagramRelay.Harm { .all(part, corrupts: corrupts) }
        var testDescription: String { part == 0 ? "direct" : "\(part) %\(corrupts ? ", corrupting" : "")" }

        private static let short = [Link(part: 0, corrupts: false), Link(part: 1, corrupts: true)]
        private static let long = [
            Link(part: 10, corrupts: false), Link(part: 30, corrupts: false), Link(part: 30, corrupts: true),
        ]
        /// The long ones take minutes, because the programs wait up to a minute for lost messages. They run
        /// only if DTLS_LINKS is "all", as in the nightly checks.
        static let all = short + (ProcessInfo.processInfo.environment["DTLS_LINKS"] == "all" ? long : [])
    }

    enum Proof: CaseIterable, Sendable {
        case certificate, key
        /// With the suites of constrained devices only.
        case deviceKey, smallDeviceKey

        /// The suite of the program, and its name in a session.
        var suite: (openssl: String, gnutls: String, name: String)? {
            switch self {
            case .certificate: nil
            case .key:
                ("ECDHE-PSK-CHACHA20-POLY1305", "+ECDHE-PSK", "TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256")
            case .deviceKey: ("PSK-AES128-GCM-SHA256", "+PSK:-CIPHER-ALL:+AES-128-GCM", "TLS_PSK_WITH_AES_128_GCM_SHA256")
            case .smallDeviceKey: ("PSK-AES128-CCM8:@SECLEVEL=0", "+PSK:-CIPHER-ALL:+AES-128-CCM-8", "TLS_PSK_WITH_AES_128_CCM_8")
            }
        }
    }
    enum Peer: String, CaseIterable, Sendable { case openssl, opensslWithCookies, gnutls, wolfssl }

    private static let key = Array("interop key 1234".utf8)
    private static let hexKey = key.map { String(format: "%02x", $0) }.joined()

    private static func client(_ proof: Proof) throws -> TLSClientSettings {
        var settings =
            switch proof {
            case .certificate: try TestCertificates.client()
            case .key, .deviceKey, .smallDeviceKey:
                TLSSettings.client(serverName: "localhost", preSharedKey: try TLSPreSharedKey(identity: "alice", key: key))
            }
        if proof == .deviceKey || proof == .smallDeviceKey { settings.policy = .constrainedDevices }
        settings.minimumVersion = .dtls12
        settings.handshakeTimeout = .seconds(60)
        return settings
    }

    private static func server(_ proof: Proof) throws -> TLSServerSettings {
        var settings =
            switch proof {
            case .certificate: try TestCertificates.server()
            case .key, .deviceKey, .smallDeviceKey:
                TLSSettings.server(preSharedKeys: TLSPreSharedKeys(try TLSPreSharedKey(identity: "alice", key: key)))
            }
        if proof == .deviceKey || proof == .smallDeviceKey { settings.policy = .constrainedDevices }
        settings.minimumVersion = .dtls12
        settings.handshakeTimeout = .seconds(60)
        return settings
    }

    // MARK: - Our client

    private static func serve(_ peer: Peer, _ proof: Proof, on port: UInt16, _ folder: TemporaryFolder) throws -> Program {
        let files = try TestCertificates.authority.issue(.server(names: ["localhost"])).write(to: folder.path)
        switch peer {
        case .openssl, .opensslWithCookies:
            let proofs =
                proof.suite.map { ["-nocert", "-psk", hexKey, "-psk_identity", "alice", "-cipher", $0.openssl] }
                ?? ["-cert", files.certificate, "-cert_chain", files.certificate, "-key", files.key]
            return try Program(
                ["openssl", "s_server", "-dtls1_2", "-accept", "127.0.0.1:\(port)", "-quiet", "-mtu", "1200"] + proofs
                    + (peer == .opensslWithCookies ? ["-listen"] : []))
        case .gnutls:
            let proofs =
                try proof.suite.map {
                    [
                        "--pskpasswd", try folder.write("alice:\(hexKey)\n", to: "keys"), "--priority",
                        "NORMAL:-VERS-ALL:+VERS-DTLS1.2:-KX-ALL:\($0.gnutls)",
                    ]
                } ?? ["--x509certfile", files.certificate, "--x509keyfile", files.key]
            return try Program(["gnutls-serv", "--udp", "--port", "\(port)", "--echo", "--mtu", "1200"] + proofs)
        case .wolfssl:
            return try Program(WolfSSLPeer.arguments("server", port, folder, files.certificate, files.key))
        }
    }

    private static func peers(_ proof: Proof) -> [Peer] { proof == .certificate ? Peer.allCases : [.openssl, .gnutls] }

    @Test(arguments: Proof.allCases, Link.all) func ourClientReachesTheirServers(_ proof: Proof, _ link: Link) async throws {
        for peer in Self.peers(proof) {
            let (port, folder) = (try Loopback.freePort(), try TemporaryFolder())
            let program = try Self.serve(peer, proof, on: port, folder)
            defer { program.stop() }
            try await eventually("\(peer) listens") { Self.isTaken(port) || !program.isRunning }
            let relay = try DatagramRelay(to: port, harm: link.harm, seed: UInt64(peer.hashValue.magnitude % 1000))
            defer { relay.close() }
            let socket = AsyncUDPSocket()
            socket.firstRetransmission = .milliseconds(100)
            try await socket.connect(to: "127.0.0.1", port: relay.port)
            let outcome = await Self.outcome { try await socket.startDTLS(settings: Self.client(proof)) }
            guard case .success(let session) = outcome else {
                #expect(link.mayFail, "\(peer): \(outcome), \(program.printed)")
                if case .failure(let error) = outcome { #expect(error is AsyncSocketError) }
                continue
            }
            #expect(session.protocolVersion == .dtls12)
            #expect((session.preSharedKeyIdentity != nil) == (proof != .certificate))
            if let suite = proof.suite { #expect(session.cipherSuite == suite.name, "\(peer)") }
            try await Self.converse(with: program, peer, over: socket)
            socket.disconnect()
        }
    }

    /// Sends lines until one is echoed or, with a program that does not echo, until it is printed. Nothing
    /// else may arrive.
    private static func converse(with program: Program, _ peer: Peer, over socket: AsyncUDPSocket) async throws {
        let echoes = peer == .gnutls || peer == .wolfssl
        var number = 0
        var hasArrived = false
        while !hasArrived || (!echoes && !program.printed.contains(" of ours")) {
            number += 1
            try #require(number < 500, "\(peer): \(program.printed)")
            try await socket.send(Data("line \(number) of ours\n".utf8))
            if !echoes { try program.write("line \(number) of theirs\n") }
            while let datagram = try? await socket.receive(timeout: .milliseconds(100)) {
                let side = echoes ? "ours" : "theirs"
                #expect(isPiece(datagram.data, ofLinesUpTo: number, of: side), "\(peer): \([UInt8](datagram.data))")
                hasArrived = true
            }
        }
    }

    /// Returns whether the bytes are a part of the written lines. A program may split input that has
    /// accumulated during a handshake in the middle of a line, and each record may be lost.
    private static func isPiece(_ bytes: Data, ofLinesUpTo count: Int, of side: String) -> Bool {
        let written = (1...max(count, 1)).map { "line \($0) of \(side)\n" }.joined()
        return !bytes.isEmpty && written.contains(String(decoding: bytes, as: UTF8.self))
    }

    private static func isTaken(_ port: UInt16) -> Bool {
        // The programs bind to an IPv4 or IPv6 address.
        let number = String(port, radix: 16, uppercase: true)
        return ["/proc/net/udp", "/proc/net/udp6"].contains { file in
            // `String(contentsOfFile:)` reads only the first page of such a file.
            let table = try? FileHandle(forReadingFrom: URL(filePath: file)).readToEnd()
            let entry = ":\(String(repeating: "0", count: 4 - number.count))\(number) "
            return table.map { String(decoding: $0, as: UTF8.self).contains(entry) } == true
        }
    }

    private static func outcome<Value: Sendable>(_ body: () async throws -> Value) async -> Result<Value, any Error> {
        do {
            return .success(try await body())
        } catch {
            return .failure(error)
        }
    }

    // MARK: - Our listener

    private static func visit(_ peer: Peer, _ proof: Proof, _ port: UInt16, _ folder: TemporaryFolder) throws -> Program {
        let roots = try folder.write(TestCertificates.authority.rootPEM, to: "roots.pem")
        switch peer {
        case .openssl, .opensslWithCookies:
            let proofs =
                proof.suite.map { ["-psk", hexKey, "-psk_identity", "alice", "-cipher", $0.openssl] }
                ?? ["-CAfile", roots, "-verify_return_error", "-servername", "localhost"]
            return try Program(
                ["openssl", "s_client", "-dtls1_2", "-connect", "127.0.0.1:\(port)", "-quiet", "-mtu", "1200"] + proofs)
        case .gnutls:
            let proofs =
                proof.suite.map {
                    [
                        "--pskusername", "alice", "--pskkey", hexKey, "--priority",
                        "NORMAL:-VERS-ALL:+VERS-DTLS1.2:-KX-ALL:\($0.gnutls)",
                    ]
                } ?? ["--x509cafile", roots]
            return try Program(["gnutls-cli", "--udp", "--mtu", "1200", "--port", "\(port)"] + proofs + ["localhost"])
        case .wolfssl: return try Program(WolfSSLPeer.arguments("client", port, folder, roots))
        }
    }

    @Test(arguments: Proof.allCases, Link.all) func theirClientsReachOurListener(_ proof: Proof, _ link: Link) async throws {
        for peer in Self.peers(proof) where peer != .opensslWithCookies {
            let pieces = Pieces()
            let listener = try DatagramListener(
                address: .loopback(), dtls: Self.server(proof),
                configure: {
                    $0.firstRetransmission = .milliseconds(100)
                })
            let serving = Task {
                try await listener.run { socket in
                    for try await datagram in socket.datagrams {
                        await pieces.add(datagram.data)
                        try await socket.send(datagram.data)
                    }
                }
            }
            let relay = try DatagramRelay(to: listener.localPort, harm: link.harm, seed: UInt64(link.part))
            defer { relay.close() }
            let folder = try TemporaryFolder()
            let program = try Self.visit(peer, proof, relay.port, folder)
            defer { program.stop() }
            var number = 0
            // gnutls-cli 3.7.9 crashes when it prints a session with a pre-shared key, even with gnutls-serv.
            while program.isRunning, !program.printed.contains(" of theirs") || program.printed.isEmpty, number < 600 {
                number += 1
                try program.write("line \(number) of theirs\n")
                _ = try? await AsyncUDPSocket.bound().receive(timeout: .milliseconds(100))
            }
            let received = await pieces.all
            let isKnownToCrash = peer == .gnutls && proof != .certificate
            #expect(!received.isEmpty || link.mayFail || isKnownToCrash, "\(peer): \(program.printed)")
            for bytes in received {
                #expect(Self.isPiece(bytes, ofLinesUpTo: number, of: "theirs"), "\(peer): \([UInt8](bytes))")
            }
            await listener.close(timeout: .zero)
            try await serving.value
        }
    }

    /// The lines that have arrived.
    private actor Pieces {
        private(set) var all: [Data] = []

        func add(_ data: Data) { all.append(data) }
    }
}

/// A program that uses wolfSSL, which Debian packages only as a library.
private enum WolfSSLPeer {
    private static let source =
        #filePath.split(separator: "/").dropLast(3).map { "/" + $0 }.joined() + "/DatagramPeers/converse.c"

    /// - Parameter files: The certificate and key for a server, or the roots for a client.
    static func arguments(_ role: String, _ port: UInt16, _ folder: TemporaryFolder, _ files: String...) -> [String] {
        let program = "\(folder.path)/converse"
        let words = [program, role, "\(port)"] + files + (files.count < 2 ? ["-"] : [])
        return ["sh", "-c", "cc -o \(program) '\(source)' -lwolfssl && exec \(words.joined(separator: " "))"]
    }
}

extension AsyncUDPSocket {
    /// Returns a socket that receives nothing, for use as a timer.
    fileprivate static func bound() throws -> AsyncUDPSocket {
        let socket = AsyncUDPSocket()
        try socket.bind(toAddress: .loopback())
        return socket
    }
}
