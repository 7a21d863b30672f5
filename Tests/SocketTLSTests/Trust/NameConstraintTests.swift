import AsyncSocketsTesting
import COpenSSL
import SocketTLS
import Testing

@Suite struct NameConstraintTests {
    private func error(
        _ constraints: String? = nil, raw: [UInt8]? = nil, names: [String] = [Fixture.host],
        _ version: TLSProtocolVersion = .tls13
    ) throws -> TLSError? {
        let chain = try HandmadeCertificate.chain(
            intermediate: HandmadeCertificate.authority + (constraints.map { [(NID_name_constraints, $0)] } ?? []),
            leaf: HandmadeCertificate.server(names), raw: raw.map { [("2.5.29.30", $0)] } ?? [])
        return try Fixture(version, leaf: chain.leaf, roots: [chain.root]).clientError()
    }

    @Test(arguments: versions, ["secret.example.org", ".secret.example.org", "SECRET.Example.org"])
    func aWildcardThatReachesIntoAnExcludedDomainIsRefused(version: TLSProtocolVersion, domain: String) throws {
        let error = try error("critical,excluded;DNS:\(domain)", names: ["*.example.org"], version)
        #expect(error?.code == .certificateRejected)
        #expect(error?.verifyCode == X509_V_ERR_EXCLUDED_VIOLATION)
        #expect(error?.message.contains("\"*.example.org\"") == true)
    }

    @Test(arguments: ["*.Example.org", "*.EXAMPLE.ORG"]) func theLettersOfAWildcardHaveNoCase(name: String) throws {
        #expect(try error("critical,excluded;DNS:secret.example.org", names: [name])?.verifyCode == X509_V_ERR_EXCLUDED_VIOLATION)
        #expect(try error("critical,excluded;DNS:secret.example.net", names: [name]) == nil)
    }

    @Test(arguments: ["example.net", "a.secret.example.org", "ample.org", "secretexample.org", "other.example.com"])
    func aWildcardElsewhereIsAccepted(domain: String) throws {
        #expect(try error("critical,excluded;DNS:\(domain)", names: ["*.example.org"]) == nil)
    }

    @Test func aNameThatIsNotExcludedIsAccepted() throws {
        #expect(try error("critical,excluded;DNS:secret.example.org") == nil)
        #expect(try error("critical,permitted;DNS:example.org") == nil)
        #expect(try error("critical,permitted;DNS:.example.org") == nil)
        #expect(try error("critical,permitted;email:.example.org,permitted;IP:10.0.0.0/255.0.0.0,excluded;DNS:a.org") == nil)
    }

    @Test(arguments: ["critical,excluded;DNS:example.org", "critical,permitted;DNS:example.net"])
    func whatOpenSSLRefusesStaysRefused(constraints: String) throws {
        #expect(try error(constraints)?.code == .certificateRejected)
        #expect(try error(constraints, names: ["*.example.org"])?.code == .certificateRejected)
    }

    @Test(arguments: [
        "critical,excluded;DNS:*.example.net", "critical,excluded;DNS:a..b", "critical,excluded;DNS:example.net.",
        "critical,excluded;IP:10.0.0.0/255.0.255.0", "critical,excluded;email:a b",
    ])
    func malformedConstraintsAreRefused(constraints: String) throws {
        let error = try error(constraints)
        #expect(error?.code == .certificateRejected)
        #expect(
            error?.message == "the certificate of \"Intermediate\" has malformed name constraints", "\(error?.message ?? "")")
    }

    /// No constraints; invalid bytes; a five-byte address; a minimum distance; the Kelvin sign, whose lower
    /// case is k.
    @Test(arguments: [
        [0x30, 0x00], [0x01, 0x02], [0x30, 0x0B, 0xA1, 0x09, 0x30, 0x07, 0x87, 0x05, 1, 2, 3, 4, 5],
        [0x30, 0x0B, 0xA1, 0x09, 0x30, 0x07, 0x82, 0x02, 0x61, 0x62, 0x81, 0x01, 0x01],
        [0x30, 0x09, 0xA1, 0x07, 0x30, 0x05, 0x82, 0x03, 0xE2, 0x84, 0xAA],
    ])
    func constraintsThatSayNothingAreRefused(bytes: [UInt8]) throws {
        let error = try error(raw: bytes)
        #expect(error?.fault == .certificate)
    }

    /// Minimum and maximum distances (RFC 5280, 4.2.1.10) in a constraint for mail addresses. The certificate
    /// has no mail address, so OpenSSL does not check the constraint. A minimum of zero is the default.
    @Test(
        arguments: [
            ([0x80, 1, 0], true), ([0x80, 1, 1], false), ([0x81, 1, 0], false), ([0x81, 1, 9], false),
            ([0x80, 1, 0, 0x81, 1, 9], false), ([], true),
        ] as [([UInt8], Bool)])
    func constraintsWithDistancesAreRefused(distances: [UInt8], isAccepted: Bool) throws {
        let name: [UInt8] = [0x81, 5] + Array("a.org".utf8)
        for kind in [0xA0, 0xA1] as [UInt8] {
            let tree = [0x30, UInt8(name.count + distances.count)] + name + distances
            let trees = [kind, UInt8(tree.count)] + tree
            let error = try error(raw: [0x30, UInt8(trees.count)] + trees)
            #expect((error == nil) == isAccepted, "\(String(describing: error))")
            #expect(isAccepted || error?.message.contains("malformed name constraints") == true)
        }
    }
}
