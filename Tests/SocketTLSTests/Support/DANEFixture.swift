import AsyncSocketsTesting
import SocketTLS

/// A server with the chain leaf, intermediate, and a client that trusts other roots but has TLSA records.
struct DANEFixture {
    var base: Fixture
    let leaf: TLSCertificate
    let intermediate: TLSCertificate
    let root: TLSCertificate

    init(
        _ version: TLSProtocolVersion = .tls13, names: [String] = [Fixture.host],
        validity: CertificateAuthority.Validity = .current
    ) throws {
        base = try Fixture(version)
        let issued = try base.authority.issue(.server(names: names), validity: validity)
        base.server.identity = try issued.identity()
        leaf = try TLSCertificate(pem: issued.certificatePEM)
        intermediate = try TLSCertificate(pem: base.authority.intermediatePEM)
        root = try TLSCertificate(pem: base.authority.rootPEM)
        base.client.trustRoots = try Fixture.stranger.roots
    }

    var client: TLSClientSettings {
        get { base.client }
        set { base.client = newValue }
    }

    /// The record that RFC 7671 recommends for this server.
    var record: TLSARecord {
        get throws { try TLSARecord(for: leaf) }
    }

    /// A record for another server.
    static var otherRecord: TLSARecord {
        get throws {
            try TLSARecord(for: TLSCertificate(pem: Fixture.stranger.issue(.server(names: [Fixture.host])).certificatePEM))
        }
    }

    /// A record with an RSA key of 16,384 bits.
    static var recordOfLargeKey: TLSARecord {
        get throws {
            let modulus = String(repeating: "ab", count: 2048)
            return try TLSARecord(
                "3 1 0 30820822 300d06092a864886f70d0101010500 0382080f00 3082080a 0282080100\(modulus) 0203010001")
        }
    }

    /// Returns a record of a certificate in the chain.
    func record(
        _ usage: TLSARecord.Usage, _ certificate: KeyPath<DANEFixture, TLSCertificate>,
        _ selector: TLSARecord.Selector = .publicKey, _ matchingType: TLSARecord.MatchingType = .sha256
    ) throws -> TLSARecord {
        try TLSARecord(for: self[keyPath: certificate], usage: usage, selector: selector, matchingType: matchingType)
    }

    mutating func expect(
        _ records: [TLSARecord], _ policy: TLSDANE.Policy = .required, _ rules: TLSCertificateRules = TLSCertificateRules()
    ) {
        client.proof = .dane(TLSDANE(records, policy: policy), rules)
    }

    func shaken(decision: Bool? = nil) throws -> EnginePair {
        let pair = try base.pair()
        pair.decideClientTrust = { _ in decision }
        pair.shakeHands()
        return pair
    }
}
