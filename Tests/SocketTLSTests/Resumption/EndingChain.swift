import COpenSSL
import SocketTLS

/// The inputs of a session that can expire.
enum SessionInput: CaseIterable {
    case ticket, leaf, intermediate, root, listOfRoot, listOfIntermediate, response, responder

    /// The inputs for a client that is verified by a server.
    static let ofClients: [SessionInput] = [.ticket, .leaf, .intermediate, .root, .listOfRoot, .listOfIntermediate]
}

/// A chain with all its proofs, one of which expires in ten minutes. If this is the ticket, which is valid
/// for an hour, no proof expires before.
struct EndingChain {
    private let root: HandmadeCertificate
    private let leaf: HandmadeCertificate
    private let lists: [TemporaryFile]
    private let response: [UInt8]
    /// The lifetime of a session.
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

    /// Returns settings in which `side` sends the chain and the other side verifies it. Sessions are resumed.
    func fixture(_ version: TLSProtocolVersion, shownBy side: Side) throws -> Fixture {
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
