import COpenSSL
import SocketTLS

/// Everything with an end that a session depends on.
enum SessionInput: CaseIterable {
    case ticket, leaf, intermediate, root, listOfRoot, listOfIntermediate, response, responder

    /// Those of a client that a server verifies.
    static let ofClients: [SessionInput] = [.ticket, .leaf, .intermediate, .root, .listOfRoot, .listOfIntermediate]
}

/// A chain with all its proofs, of which one ends in ten minutes. If it is the ticket, which lives for an
/// hour, none of the proofs ends before.
struct EndingChain {
    private let root: HandmadeCertificate
    private let leaf: HandmadeCertificate
    private let lists: [TemporaryFile]
    private let response: [UInt8]
    /// How long a session lives.
    let seconds: Int

    init(_ first: SessionInput) throws {
        func end(_ input: SessionInput) -> Int? { input == first ? 600 : nil }
        seconds = first == .ticket ? 3600 : 600
        let names = HandmadeCertificate.server().filter { $0.0 != NID_ext_key_usage }
        root = try HandmadeCertificate("Root", HandmadeCertificate.authority, endingIn: end(.root))
        let intermediate = try HandmadeCertificate(
            "Intermediate", HandmadeCertificate.authority, endingIn: end(.intermediate), signedBy: root)
        leaf = try HandmadeCertificate("Server", names, endingIn: end(.leaf), signedBy: intermediate)
        lists = [
            try TemporaryFile(bytes: root.revocationList(endingIn: end(.listOfRoot))),
            try TemporaryFile(bytes: intermediate.revocationList(endingIn: end(.listOfIntermediate))),
        ]
        let responder = try HandmadeCertificate(
            "Responder", [(NID_ext_key_usage, "OCSPSigning")], endingIn: end(.responder), signedBy: intermediate)
        response = try intermediate.response(about: leaf, .init(seconds: end(.response), responder: responder))
    }

    /// Settings by which `side` shows the chain, and the other side verifies it; sessions are resumed.
    func fixture(_ version: TLSVersion, shownBy side: Side) throws -> Fixture {
        var fixture = try side == .server ? Fixture(version, leaf: leaf, roots: [root]) : Fixture(version)
        fixture.server.values.tickets = .issued(1)
        let lists = lists.map { TLSRevocationSource.file(path: $0.path) }
        switch side {
        case .server:
            fixture.server.identity = try leaf.identity.stapling(ocspResponse: response)
            fixture.client.values.ocspStapling = .required
            fixture.client.values.rules.revocationLists = lists
        case .client:
            fixture.client.identity = try leaf.identity
            try fixture.askForClientCertificate()
            fixture.server.trustRoots = try .certificates([root.certificate])
            fixture.server.values.rules.revocationLists = lists
        }
        return fixture
    }
}
