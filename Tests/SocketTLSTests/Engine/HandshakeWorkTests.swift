import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketBuffers
import SocketTLS
import SocketTestTraits
import Testing

/// Two engines whose work is done by another thread.
private final class WorkingPair {
    var client: TLSEngine
    var server: TLSEngine
    private(set) var clientWork = 0
    private(set) var serverWork = 0
    private(set) var clientAnswer = TLSEngine.HandshakeAnswer.incomplete
    private(set) var serverAnswer = TLSEngine.HandshakeAnswer.incomplete
    private(set) var questions = 0

    init(_ fixture: Fixture) throws {
        client = try Self.engine(fixture.client)
        server = try Self.engine(fixture.server)
    }

    private static func engine(_ settings: TLSSettings<some TLSRole.Side>) throws -> TLSEngine {
        try TLSEngine(context: TLSContext.context(for: settings), settings: settings, endpoint: "here:1", defersWork: true)
    }

    /// Performs the handshake until no more data moves.
    func shakeHands() {
        repeat {
            clientAnswer = advance(&client, &clientWork)
            serverAnswer = advance(&server, &serverWork)
        } while Self.carry(from: client, to: server) || Self.carry(from: server, to: client)
    }

    var isComplete: Bool { clientAnswer.isComplete && serverAnswer.isComplete }

    private func advance(_ engine: inout TLSEngine, _ count: inout Int) -> TLSEngine.HandshakeAnswer {
        while true {
            switch engine.handshake() {
            case .awaitingWork(let work):
                count += 1
                Self.onAnotherThread { work.perform() }
                engine = work.finish()
            case .awaitingTrust:
                questions += 1
                engine.decideTrust(true)
            case let answer: return answer
            }
        }
    }

    private static func onAnotherThread(_ body: @escaping @Sendable () -> Void) {
        let done = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            body()
            done.signal()
        }
        done.wait()
    }

    static func carry(from source: TLSEngine, to destination: TLSEngine) -> Bool {
        let bytes = source.output.readableBytes
        guard !bytes.isEmpty else { return false }
        destination.received.append(bytes)
        source.output.consume(bytes.count)
        return true
    }

    /// Sends a byte from the server, together with its ticket.
    func sendTicket() throws {
        _ = [UInt8(1)].withUnsafeBytes { server.write($0) }
        _ = Self.carry(from: server, to: client)
        let plaintext = PreBuffer()
        guard case .bytes(1) = client.read(into: plaintext, limit: 10) else { throw TestFailure(what: "no byte") }
    }
}

/// Expensive work is moved off the thread of the engine's owner.
@Suite(.ownThreads) struct HandshakeWorkTests {
    /// A root, seven intermediates and a leaf, all with P-384 keys. Verification takes four milliseconds.
    static func longChain(_ extensions: HandmadeCertificate.Extensions) throws -> (
        root: HandmadeCertificate, leaf: HandmadeCertificate
    ) {
        let root = try HandmadeCertificate("Root", HandmadeCertificate.authority, curve: "P-384")
        var issuer = root
        for number in 0..<7 {
            issuer = try HandmadeCertificate(
                "Authority \(number)", HandmadeCertificate.authority, signedBy: issuer, curve: "P-384")
        }
        return (root, try HandmadeCertificate("Leaf", extensions, signedBy: issuer, curve: "P-384"))
    }

    private static let clientExtensions: HandmadeCertificate.Extensions = [
        (NID_basic_constraints, "critical,CA:FALSE"), (NID_key_usage, "critical,digitalSignature"),
        (NID_ext_key_usage, "clientAuth"), (NID_subject_key_identifier, "hash"), (NID_authority_key_identifier, "keyid:always"),
    ]

    @Test(arguments: versions) func aUsualHandshakeStaysWhereItIs(_ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        try fixture.showClientCertificate()
        fixture.server.additionalIdentities = [
            try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa2048).identity()
        ]
        let pair = try WorkingPair(fixture)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.clientWork == 0 && pair.serverWork == 0)
    }

    @Test(arguments: versions) func aServersLongKeySignsElsewhere(_ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.identity = try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa3072).identity()
        let pair = try WorkingPair(fixture)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.clientWork == 0 && pair.serverWork == 1)
    }

    /// Returns a pair in which the server's large key must sign.
    private func pairThatWaitsForASignature(_ version: TLSProtocolVersion) throws -> (WorkingPair, HandshakeWork) {
        var fixture = try Fixture(version)
        fixture.server.identity = try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa3072).identity()
        let pair = try WorkingPair(fixture)
        _ = pair.client.handshake()
        #expect(WorkingPair.carry(from: pair.client, to: pair.server))
        guard case .awaitingWork(let work) = pair.server.handshake() else { throw TestFailure(what: "work") }
        return (pair, work)
    }

    /// Rule 3 of the workers: no worker is available for the signature.
    @Test(arguments: versions) func aClientLearnsThatNoThreadSigns(_ version: TLSProtocolVersion) throws {
        let (pair, work) = try pairThatWaitsForASignature(version)
        let server = work.finish()
        server.refuseWork()
        #expect(server.handshake().error?.code == .closedDuringHandshake && server.write("data").error != nil)
        #expect(WorkingPair.carry(from: server, to: pair.client))
        #expect(pair.client.handshake().error?.alert == .internalError)
    }

    @Test(arguments: versions) func aClientsLongKeySignsElsewhere(_ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        fixture.client.identity = try fixture.authority.issue(.client(commonName: "alice"), keyType: .rsa3072).identity()
        let pair = try WorkingPair(fixture)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.clientWork == 1 && pair.serverWork == 0)
        #expect(pair.server.session?.peerCertificates.first == fixture.client.identity?.certificateChain.first)
    }

    @Test(arguments: versions) func aKeyThatIsNotNeededIsNoWork(_ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.client.identity = try fixture.authority.issue(.client(commonName: "alice"), keyType: .rsa3072).identity()
        let pair = try WorkingPair(fixture)
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(pair.clientWork == 0)
    }

    @Test(arguments: versions) func aResumedSessionNeedsNoSignature(_ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        fixture.server.identity = try fixture.authority.issue(.server(names: [Fixture.host]), keyType: .rsa3072).identity()
        fixture.server.values.tickets = .issued(1)
        fixture.client.resumption = .store(TLSInMemorySessionStore())
        let first = try WorkingPair(fixture)
        first.shakeHands()
        try first.sendTicket()
        let second = try WorkingPair(fixture)
        second.shakeHands()
        #expect(second.isComplete)
        #expect(second.client.session?.isResumed == true)
        #expect(first.serverWork == 1 && second.serverWork == 0)
    }

    @Test(arguments: versions) func aLongChainOfAServerIsVerifiedElsewhere(_ version: TLSProtocolVersion) throws {
        let (root, leaf) = try Self.longChain(HandmadeCertificate.server())
        var fixture = try Fixture(version, leaf: leaf, roots: [root])
        for evaluation in [TLSTrustEvaluation.builtIn, .delegate] {
            fixture.client.trustEvaluation = evaluation
            let pair = try WorkingPair(fixture)
            pair.shakeHands()
            #expect(pair.isComplete)
            #expect(pair.clientWork == 1 && pair.serverWork == 0)
            #expect(pair.questions == (evaluation == .delegate ? 1 : 0))
        }
    }

    /// Each list has a signature, so a chain that is cheap without them may be expensive with them.
    @Test(arguments: versions) func listsOfRevokedCertificatesCost(_ version: TLSProtocolVersion) throws {
        let root = try HandmadeCertificate("Root", HandmadeCertificate.authority, curve: "P-384")
        let middle = try HandmadeCertificate("Middle", HandmadeCertificate.authority, signedBy: root, curve: "P-384")
        let leaf = try HandmadeCertificate("Leaf", HandmadeCertificate.server(), signedBy: middle, curve: "P-384")
        let lists = try [root, middle].map { try TemporaryFile(bytes: $0.revocationList()) }
        var fixture = try Fixture(version, leaf: leaf, roots: [root])
        for hasLists in [false, true] {
            if hasLists { fixture.client.values.rules.revocationLists = lists.map { .file(path: $0.path) } }
            let pair = try WorkingPair(fixture)
            pair.shakeHands()
            #expect(pair.isComplete)
            #expect(pair.clientWork == (hasLists ? 1 : 0) && pair.serverWork == 0)
        }
    }

    @Test(arguments: versions) func aLongChainOfAClientIsVerifiedElsewhere(_ version: TLSProtocolVersion) throws {
        let (root, leaf) = try Self.longChain(Self.clientExtensions)
        var fixture = try Fixture(version)
        try fixture.askForClientCertificate()
        fixture.server.trustRoots = .certificates([try root.certificate])
        fixture.client.identity = try leaf.identity
        for evaluation in [TLSTrustEvaluation.builtIn, .delegate] {
            fixture.server.trustEvaluation = evaluation
            let pair = try WorkingPair(fixture)
            pair.shakeHands()
            #expect(pair.isComplete)
            #expect(pair.serverWork > 0)
            #expect(pair.questions == (evaluation == .delegate ? 1 : 0))
            #expect(pair.server.session?.peerCertificates.count == 8)
        }
    }

    @Test(arguments: versions) func whatIsRefusedElsewhereHasItsAlert(_ version: TLSProtocolVersion) throws {
        let (_, leaf) = try Self.longChain(HandmadeCertificate.server())
        let (other, _) = try Self.longChain(HandmadeCertificate.server())
        let fixture = try Fixture(version, leaf: leaf, roots: [other])
        let pair = try WorkingPair(fixture)
        pair.shakeHands()
        #expect(pair.clientAnswer.error?.code == .certificateRejected || pair.clientAnswer.error?.code == .unknownIssuer)
        #expect(pair.clientAnswer.error?.sentAlert == .unknownCA)
        #expect(pair.serverAnswer.error?.alert == .unknownCA || version == .tls13)
        #expect(pair.clientWork == 1)
    }

    @Test(arguments: versions) func cancelledWorkDoesNothing(_ version: TLSProtocolVersion) throws {
        let (pair, work) = try pairThatWaitsForASignature(version)
        work.cancel()
        work.perform()
        #expect(work.finish().output.isEmpty && !pair.isComplete)
    }
}
