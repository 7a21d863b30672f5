import SocketTestSupport

/// A chain sent by one side, the certificates trusted by the other, and the expected verdicts of both stacks.
struct VerdictCase: Sendable, CustomStringConvertible {
    enum Verdict: Sendable, Equatable {
        case trusted, refused
        /// GnuTLS 3.7 trusts it, and this library does not, with the document that requires this.
        case refusedByUsAlone(String)

        var isTrusted: Bool { self == .trusted }
        /// A newer GnuTLS may be as strict.
        func allows(gnuTLS isTrusted: Bool) -> Bool {
            if case .refusedByUsAlone = self { true } else { isTrusted == self.isTrusted }
        }
    }

    let description: String
    let verdict: Verdict
    var host = "mail.example.org"
    /// The leaf first, the root last.
    var plans: [CertificatePlan]
    /// The indices of the certificates sent, in order. -1 is an unrelated root.
    var shown = [0, 1]
    /// The indices of the trusted certificates.
    var trusted = [2]
    /// The revocation list of the other side.
    var list: RevocationPlan?

    init(
        _ description: String, _ verdict: Verdict, leaf: CertificatePlan = .server,
        _ change: (inout VerdictCase) -> Void = { _ in }
    ) {
        (self.description, self.verdict) = (description, verdict)
        plans = [leaf, .authority("Intermediate", .middle), .authority("Root", .root)]
        change(&self)
    }

    var leaf: CertificatePlan {
        get { plans[0] }
        set { plans[0] = newValue }
    }
    var intermediate: CertificatePlan {
        get { plans[1] }
        set { plans[1] = newValue }
    }
    var root: CertificatePlan {
        get { plans[plans.count - 1] }
        set { plans[plans.count - 1] = newValue }
    }

    mutating func addIntermediate() {
        plans.insert(.authority("Lower", .lower), at: 1)
        (shown, trusted) = ([0, 1, 2], [3])
    }

    /// Returns the PEM of the certificates at `places`.
    func pem(_ places: [Int]) async throws -> String {
        var text = ""
        for place in places {
            if place < 0 {
                text += try await CerttoolAuthority.shared.certificate(.authority("Stranger", .stranger), below: [])
                continue
            }
            text += try await CerttoolAuthority.shared.certificate(plans[place], below: plans.dropFirst(place + 1))
        }
        return text
    }
}

// MARK: - Why GnuTLS is too lax

/// RSA keys must have at least 2,048 bits. certtool prints a warning about this too.
private let shortKey = "RFC 9325, 4.5"
/// A wildcard must be the complete first label.
private let partOfALabel = "RFC 9525, 6.3"
/// The common name is ignored.
private let commonName = "RFC 9525, 2"
/// A wildcard certificate is valid for all names it covers, some of which are excluded.
private let wildcardReaches = "RFC 5280, 4.2.1.10"
/// The user decides whether an intermediate is a trust anchor: `acceptsPartialChains`.
private let anchorIsAChoice = "RFC 5280, 6.1.1 (d)"
/// Without a valid list from its issuer, a certificate is not known to be valid.
private let withoutAList = "RFC 5280, 6.3.3"

// MARK: - Independent of the side

extension VerdictCase {
    static func ofBothSides(_ leaf: CertificatePlan) -> [VerdictCase] {
        func made(_ text: String, _ verdict: Verdict, _ change: @escaping (inout VerdictCase) -> Void) -> VerdictCase {
            VerdictCase(text, verdict, leaf: leaf, change)
        }
        let isServer = leaf == .server
        // gnutls-serv does not check the purpose.
        let otherPurpose = isServer ? Verdict.refused : .refusedByUsAlone("RFC 5280, 4.2.1.12")
        return [
            made("a good chain", .trusted) { _ in },
            made("a leaf below the root", .trusted) {
                $0.plans.remove(at: 1); ($0.shown, $0.trusted) = ([0], [1])
            },
            made("two intermediates", .trusted) { $0.addIntermediate() },
            made("the root is shown too", .trusted) { $0.shown = [0, 1, 2] },
            made("an intermediate is missing", .refused) { $0.shown = [0] },
            made("a stranger's root", .refused) { $0.trusted = [-1] },
            made("an intermediate that its issuer has not signed", .refused) { $0.intermediate.signingKey = .stranger },
            made("a leaf that its issuer has not signed", .refused) { $0.leaf.signingKey = .stranger },
            made("the leaf signs itself", .refused) { $0.leaf.isSelfSigned = true },
            made("an expired leaf", .refused) { $0.leaf.expire() },
            made("an expired intermediate", .refused) { $0.intermediate.expire() },
            made("an expired root", .refused) { $0.root.expire() },
            made("a leaf of later", .refused) { $0.leaf.beginLater() },
            made("an intermediate of later", .refused) { $0.intermediate.beginLater() },
            made("an intermediate that is not an authority", .refused) { $0.intermediate.remove("ca") },
            made("an intermediate that may not sign certificates", .refused) {
                $0.intermediate.remove("cert_signing_key")
                $0.intermediate.lines.append("crl_signing_key")
            },
            made("an intermediate of version 1", .refused) { $0.intermediate.options = ["--v1"] },
            made("a root without room for an intermediate", .refused) { $0.root.lines.append("path_len = 0") },
            made("an intermediate without room for another", .refused) {
                $0.addIntermediate()
                $0.plans[2].lines.append("path_len = 0")
            },
            made("an intermediate with room for none", .trusted) { $0.intermediate.lines.append("path_len = 0") },
            made("a root with room for one", .trusted) { $0.root.lines.append("path_len = 1") },
            made("an unknown critical extension of the leaf", .refused) {
                $0.leaf.lines.append("add_critical_extension = \"1.2.3.4 0x0500\"")
            },
            made("an unknown critical extension of an authority", .refused) {
                $0.intermediate.lines.append("add_critical_extension = \"1.2.3.4 0x0500\"")
            },
            made("an unknown extension that is not critical", .trusted) {
                $0.leaf.lines.append("add_extension = \"1.2.3.4 0x0500\"")
            },
            made("a leaf signed with SHA-1", .refused) { $0.leaf.options = ["--hash", "SHA1"] },
            made("an intermediate signed with SHA-1", .refused) { $0.intermediate.options = ["--hash", "SHA1"] },
            made("a root signed with SHA-1", .trusted) { $0.root.options = ["--hash", "SHA1"] },
            made("an intermediate of 1,024 bits", .refusedByUsAlone(shortKey)) { $0.intermediate.key = .weak },
            made("a leaf with the other purpose alone", otherPurpose) {
                $0.leaf.remove(isServer ? "tls_www_server" : "tls_www_client")
                $0.leaf.lines.append(isServer ? "tls_www_client" : "tls_www_server")
            },
            made("a leaf for code alone", otherPurpose) {
                $0.leaf.remove(isServer ? "tls_www_server" : "tls_www_client")
                $0.leaf.lines.append("code_signing_key")
            },
            made("a leaf for both purposes", .trusted) { $0.leaf.lines += ["tls_www_client", "tls_www_server"] },
            made("a leaf without purposes", .trusted) { $0.leaf.remove(isServer ? "tls_www_server" : "tls_www_client") },
            made("an authority for the other purpose", otherPurpose) {
                $0.intermediate.lines.append(isServer ? "tls_www_client" : "tls_www_server")
            },
            made("an authority for the purpose", .trusted) {
                $0.intermediate.lines.append(isServer ? "tls_www_server" : "tls_www_client")
            },
            made("a leaf without key usage", .trusted) { $0.leaf.remove("signing_key") },
            made("a leaf that is an authority", .trusted) { $0.leaf.lines += ["ca", "cert_signing_key"] },
        ]
    }
}

// MARK: - Lists of revoked certificates

extension VerdictCase {
    /// Lists from the root, because GnuTLS accepts lists only from directly trusted issuers.
    static func revoked(_ leaf: CertificatePlan) -> [VerdictCase] {
        func made(
            _ text: String, _ verdict: Verdict, revoked: [CertificatePlan] = [], isDirect: Bool = true,
            change: (inout RevocationPlan, inout VerdictCase) -> Void = { _, _ in }
        ) -> VerdictCase {
            VerdictCase(text, verdict, leaf: leaf) {
                $0.root.lines.append("crl_signing_key")
                if isDirect {
                    $0.plans.remove(at: 1)
                    ($0.shown, $0.trusted) = ([0], [1])
                }
                var list = RevocationPlan(revoked: revoked)
                change(&list, &$0)
                $0.list = list
            }
        }
        let other = CertificatePlan.authority("Intermediate", .middle)
        // gnutls-serv checks neither the date nor the signature of a list.
        let badList = leaf == .server ? Verdict.refused : .refusedByUsAlone(withoutAList)
        return [
            made("a list that names nothing", .trusted),
            made("a revoked leaf", .refused, revoked: [leaf]),
            made("a revoked leaf beside another", .refused, revoked: [other, leaf]),
            made("another revoked certificate", .trusted, revoked: [other]),
            made("a list that has ended", badList) { list, _ in list.nextUpdate = "2021-01-01 00:00:00" },
            made("a list that has not begun", badList) { list, _ in list.update = "2038-01-01 00:00:00" },
            made("a list that a stranger has signed", badList) { list, _ in list.signingKey = .stranger },
            made("a list of an authority that may sign none", badList) { _, chain in chain.root.remove("crl_signing_key") },
            made("a revoked intermediate", .refused, revoked: [other], isDirect: false),
            made("no list of the leaf's issuer", .refusedByUsAlone(withoutAList), isDirect: false),
        ]
    }
}

// MARK: - Names

extension VerdictCase {
    private static func named(_ text: String, _ verdict: Verdict, host: String = "mail.example.org", _ names: String...)
        -> VerdictCase
    {
        VerdictCase(text, verdict) {
            $0.leaf.lines.removeAll { $0.hasPrefix("dns_name") }
            $0.leaf.lines += names
            $0.host = host
        }
    }

    static let names = [
        named("another name", .refused, "dns_name = \"www.example.org\""),
        named("the second of two names", .trusted, "dns_name = \"www.example.org\"", "dns_name = \"mail.example.org\""),
        named("upper case", .trusted, "dns_name = \"MAIL.Example.ORG\""),
        named("a longer name", .refused, "dns_name = \"mail.example.org.example.net\""),
        named("a shorter name", .refused, "dns_name = \"example.org\""),
        named("the end of the name", .refused, "dns_name = \"ail.example.org\""),
        named("a wildcard", .trusted, "dns_name = \"*.example.org\""),
        named("a wildcard in upper case", .trusted, "dns_name = \"*.EXAMPLE.org\""),
        named("a wildcard for two labels", .refused, host: "a.mail.example.org", "dns_name = \"*.example.org\""),
        named("a wildcard for no label", .refused, host: "example.org", "dns_name = \"*.example.org\""),
        named("a wildcard alone", .refused, "dns_name = \"*\""),
        named("a wildcard below a domain of one label", .refused, host: "example.org", "dns_name = \"*.org\""),
        named("a wildcard that is not the first label", .refused, "dns_name = \"mail.*.org\""),
        named("two wildcards", .refused, "dns_name = \"*.*.org\""),
        named("a wildcard before letters", .refusedByUsAlone(partOfALabel), "dns_name = \"*il.example.org\""),
        named("a wildcard behind letters", .refused, "dns_name = \"m*.example.org\""),
        named("an address", .trusted, host: "127.0.0.1", "ip_address = \"127.0.0.1\""),
        named("another address", .refused, host: "127.0.0.1", "ip_address = \"127.0.0.2\""),
        named("an address of the new kind", .trusted, host: "::1", "ip_address = \"::1\""),
        named("an address as a name", .refused, host: "127.0.0.1", "dns_name = \"127.0.0.1\""),
        named("a wildcard for addresses", .refused, host: "127.0.0.1", "dns_name = \"*.0.0.1\""),
        named("a name, asked for by address", .refused, host: "127.0.0.1", "dns_name = \"mail.example.org\""),
        named("no name", .refused),
        VerdictCase("the common name beside another name", .refused) {
            $0.leaf.name = "mail.example.org"
            $0.leaf.setNames("dns_name = \"www.example.org\"")
        },
        VerdictCase("the common name alone", .refusedByUsAlone(commonName)) {
            $0.leaf.name = "mail.example.org"
            $0.leaf.setNames()
        },
        VerdictCase("an address as the common name", .refused) {
            $0.leaf.name = "127.0.0.1"
            $0.leaf.setNames()
            $0.host = "127.0.0.1"
        },
        VerdictCase("no subject", .trusted) { $0.leaf.name = "" },
    ]

    private static func constrained(
        _ text: String, _ verdict: Verdict, _ lines: String..., change: (inout VerdictCase) -> Void = { _ in }
    ) -> VerdictCase {
        VerdictCase(text, verdict) {
            $0.intermediate.lines += lines
            change(&$0)
        }
    }

    static let constraints = [
        constrained("a permitted domain", .trusted, "nc_permit_dns = \"example.org\""),
        constrained("the name as the permitted domain", .trusted, "nc_permit_dns = \"mail.example.org\""),
        constrained("another permitted domain", .refused, "nc_permit_dns = \"example.net\""),
        constrained(
            "the second permitted domain", .trusted, "nc_permit_dns = \"example.net\"", "nc_permit_dns = \"EXAMPLE.org\""),
        constrained("the end of a label is permitted", .refused, "nc_permit_dns = \"ample.org\""),
        constrained("an excluded domain", .refused, "nc_exclude_dns = \"example.org\""),
        constrained("an excluded domain in upper case", .refused, "nc_exclude_dns = \"EXAMPLE.ORG\""),
        constrained("another excluded domain", .trusted, "nc_exclude_dns = \"example.net\""),
        constrained(
            "excluded below the permitted", .refused, "nc_permit_dns = \"example.org\"", "nc_exclude_dns = \"mail.example.org\""),
        constrained("a wildcard in the permitted domain", .trusted, "nc_permit_dns = \"example.org\"") {
            $0.leaf.setNames("dns_name = \"*.example.org\"")
        },
        constrained("a wildcard above the permitted domain", .refused, "nc_permit_dns = \"mail.example.org\"") {
            $0.leaf.setNames("dns_name = \"*.example.org\"")
        },
        constrained(
            "a wildcard above an excluded domain", .refusedByUsAlone(wildcardReaches), "nc_exclude_dns = \"secret.example.org\""
        ) {
            $0.leaf.setNames("dns_name = \"*.example.org\"")
        },
        constrained("a permitted address", .trusted, "nc_permit_ip = \"127.0.0.0/8\"") {
            $0.leaf.setNames("ip_address = \"127.0.0.1\"")
            $0.host = "127.0.0.1"
        },
        constrained("another permitted address", .refused, "nc_permit_ip = \"10.0.0.0/8\"") {
            $0.leaf.setNames("ip_address = \"127.0.0.1\"")
            $0.host = "127.0.0.1"
        },
        constrained("an excluded address beside the name", .refused, "nc_exclude_ip = \"127.0.0.0/8\"") {
            $0.leaf.lines.append("ip_address = \"127.0.0.1\"")
        },
        constrained("a constraint on other kinds of names", .trusted, "nc_permit_email = \"example.net\""),
        VerdictCase("a constraint of the root", .refused) { $0.root.lines.append("nc_permit_dns = \"example.net\"") },
        VerdictCase("a constraint of the upper of two", .refused) {
            $0.addIntermediate()
            $0.plans[2].lines.append("nc_exclude_dns = \"example.org\"")
        },
    ]

    /// A client's names are only compared with the constraints.
    static let clientConstraints: [VerdictCase] = [
        ("a permitted domain", .trusted, "nc_permit_dns = \"example.org\"", "dns_name = \"a.example.org\""),
        ("another permitted domain", .refused, "nc_permit_dns = \"example.net\"", "dns_name = \"a.example.org\""),
        ("the permitted host of a mail address", .trusted, "nc_permit_email = \"example.org\"", "email = \"ann@example.org\""),
        ("another permitted host", .refused, "nc_permit_email = \"example.net\"", "email = \"ann@example.org\""),
        ("a host below the permitted", .refused, "nc_permit_email = \"example.org\"", "email = \"ann@a.example.org\""),
        ("the permitted hosts below a domain", .trusted, "nc_permit_email = \".example.org\"", "email = \"ann@a.example.org\""),
        ("an excluded mail address", .refused, "nc_exclude_email = \"ann@example.org\"", "email = \"ann@example.org\""),
        ("an excluded host in upper case", .refused, "nc_exclude_email = \"EXAMPLE.org\"", "email = \"ann@example.org\""),
        ("another excluded mail address", .trusted, "nc_exclude_email = \"bob@example.org\"", "email = \"ann@example.org\""),
        ("an excluded address", .refused, "nc_exclude_ip = \"127.0.0.0/8\"", "ip_address = \"127.0.0.1\""),
        ("addresses when names are constrained", .trusted, "nc_permit_dns = \"example.org\"", "ip_address = \"127.0.0.1\""),
    ].map { text, verdict, constraint, name in
        VerdictCase(text, verdict, leaf: .client) {
            $0.intermediate.lines.append(constraint)
            $0.leaf.lines.append(name)
        }
    }

    /// Trust anchors of clients and servers, and the order of chains.
    static let anchors = [
        VerdictCase("the chain in another order", .trusted) {
            $0.addIntermediate()
            $0.shown = [0, 2, 1]
        },
        VerdictCase("a stranger is shown too", .trusted) {
            $0.shown = [0, 1, -1]
        },
        VerdictCase("an intermediate alone is trusted", .refusedByUsAlone(anchorIsAChoice)) { $0.trusted = [1] },
        VerdictCase("the leaf alone is trusted", .refused) { $0.trusted = [0] },
        VerdictCase("the leaf signs itself and is trusted", .trusted) {
            $0.leaf.isSelfSigned = true
            ($0.shown, $0.trusted) = ([0], [0])
        },
        VerdictCase("a server that issues for itself", .refused) {
            $0.intermediate = .server
            $0.intermediate.key = .middle
        },
        VerdictCase("a leaf of 1,024 bits", .refusedByUsAlone(shortKey)) { $0.leaf.key = .weak },
    ]
}
