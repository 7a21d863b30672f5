import AsyncSocketsTesting
import COpenSSL
import Foundation
import SocketTLS

/// A chain sent by a server, and its client's settings.
struct ChainCase {
    /// The seed that reproduces the case.
    let seed: UInt64
    /// The changes made to a valid chain, for messages.
    var changes: [String]
    /// The certificates sent, with the leaf first.
    var shown: [PlannedCertificate]
    var roots: [PlannedCertificate]
    var serverName = "mail.example.org"
    var verifiesHostName = true
    var isStrict = false
    var acceptsPartialChains = false
    /// Seconds since 1970, or nil for the current time.
    var verificationTime: Int?
    /// The maximum number of certificates sent, and of those between the leaf and a root.
    var limit = 10
    var version = TLSProtocolVersion.tls13
    var evaluation = TLSTrustEvaluation.builtIn

    /// Rules in which this library must be stricter than OpenSSL.
    enum Rule: String, CaseIterable {
        case wildcardReachesIntoExcludedDomain, malformedConstraints, authorityAsPeerInStrictMode, keyThatMayNotSign

        var code: Int32 {
            switch self {
            case .wildcardReachesIntoExcludedDomain: X509_V_ERR_EXCLUDED_VIOLATION
            case .malformedConstraints: X509_V_ERR_UNSUPPORTED_CONSTRAINT_SYNTAX
            case .authorityAsPeerInStrictMode: X509_V_ERR_INVALID_PURPOSE
            case .keyThatMayNotSign: X509_V_ERR_KEYUSAGE_NO_DIGITAL_SIGNATURE
            }
        }
    }

    /// Returns the rules that a path breaks, according to how its certificates were created.
    func brokenRules(along path: [PlannedCertificate]) -> [Rule] {
        guard let leaf = path.first?.plan else { return [] }
        let wildcards = leaf.alternativeNames.map { $0.replacing("DNS:", with: "").lowercased() }
        let constraints = path.dropFirst().compactMap(\.plan.constraints)
        return Rule.allCases.filter { rule in
            switch rule {
            case .wildcardReachesIntoExcludedDomain:
                constraints.contains { !$0.isMalformed && !Set($0.reachedBy).isDisjoint(with: wildcards) }
            case .malformedConstraints: constraints.contains(where: \.isMalformed)
            case .authorityAsPeerInStrictMode: isStrict && leaf.isAuthority
            // If extensions cannot be decoded, none of them allows a signature.
            case .keyThatMayNotSign: leaf.cannotSign || path.first?.hasUnreadableExtensions == true
            }
        }
    }

    var description: String {
        let settings = [
            "CHAIN_SEED=\(seed)", "\(version)", "\(evaluation)", serverName, verifiesHostName ? nil : "any name",
            isStrict ? "strict" : nil, acceptsPartialChains ? "partial" : nil, verificationTime.map { "at \($0)" },
            limit < 10 ? "limit \(limit)" : nil, "\(shown.count) shown", "\(roots.count) roots",
        ]
        return (settings.compactMap(\.self) + changes).joined(separator: ", ")
    }
}

/// OpenSSL's `X509_V_ERR_*` code and its depth.
struct ChainVerdict: Hashable, CustomStringConvertible {
    var code = X509_V_OK
    var depth = 0

    var isTrusted: Bool { code == X509_V_OK }

    var description: String {
        isTrusted
            ? "trusted" : "\(code) at \(depth) (\(X509_verify_cert_error_string(Int(code)).map { String(cString: $0) } ?? ""))"
    }
}

// MARK: - Plain OpenSSL

extension ChainCase {
    /// Returns OpenSSL's verdict without this library, and the path that it has found.
    func plainVerdict() throws -> (verdict: ChainVerdict, path: [PlannedCertificate]) {
        let untrusted = COpenSSL_sk_X509_new()
        defer { COpenSSL_sk_X509_free(untrusted) }
        // OpenSSL caches results in certificate objects, so none is used twice.
        let (shown, roots) = (try shown.map { try $0.copy() }, try roots.map { try $0.copy() })
        for certificate in shown {
            X509_up_ref(certificate.x509)
            _ = COpenSSL_sk_X509_push(untrusted, certificate.x509)
        }
        guard let store = X509_STORE_new(), let context = X509_STORE_CTX_new() else { throw TestFailure(what: "store") }
        defer {
            X509_STORE_CTX_free(context)
            X509_STORE_free(store)
        }
        for root in roots { X509_STORE_add_cert(store, root.x509) }
        guard X509_STORE_CTX_init(context, store, shown[0].x509, untrusted) == 1, setParameters(of: context) else {
            throw TestFailure(what: "X509_STORE_CTX")
        }
        ERR_clear_error()
        defer { ERR_clear_error() }
        guard X509_verify_cert(context) == 1 else {
            let code = X509_STORE_CTX_get_error(context)
            let depth = Int(X509_STORE_CTX_get_error_depth(context))
            return (ChainVerdict(code: code == X509_V_OK ? X509_V_ERR_UNSPECIFIED : code, depth: depth), [])
        }
        let chain = X509_STORE_CTX_get0_chain(context)
        let path = try (0..<COpenSSL_sk_X509_num(chain)).map { index in
            let found = COpenSSL_sk_X509_value(chain, index)
            guard let known = (shown + roots).first(where: { X509_cmp($0.x509, found) == 0 }) else {
                throw TestFailure(what: "a certificate from elsewhere")
            }
            return known
        }
        return (ChainVerdict(), path)
    }

    /// As set by OpenSSL's own client, plus this library's documented choices: security level 2, and names
    /// according to RFC 6125.
    private func setParameters(of context: OpaquePointer) -> Bool {
        guard X509_STORE_CTX_set_default(context, "ssl_server") == 1 else { return false }
        let parameters = X509_STORE_CTX_get0_param(context)
        X509_VERIFY_PARAM_set_auth_level(parameters, 2)
        X509_VERIFY_PARAM_set_depth(parameters, Int32(limit))
        var flags = 0
        if isStrict { flags |= Int(X509_V_FLAG_X509_STRICT) }
        if acceptsPartialChains { flags |= Int(X509_V_FLAG_PARTIAL_CHAIN) }
        X509_VERIFY_PARAM_set_flags(parameters, UInt(flags))
        if let verificationTime { X509_VERIFY_PARAM_set_time(parameters, verificationTime) }
        X509_VERIFY_PARAM_set_hostflags(
            parameters, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT))
        guard verifiesHostName else { return true }
        return X509_VERIFY_PARAM_set1_ip_asc(parameters, serverName) == 1
            || X509_VERIFY_PARAM_set1_host(parameters, serverName, serverName.utf8.count) == 1
    }
}

// MARK: - This library

extension ChainCase {
    /// Returns the verdict of one of our clients on a bare server with the chain. The depth is known only if
    /// the callback is called.
    func verdict() throws -> (verdict: ChainVerdict, hasDepth: Bool) {
        let settings = try settings()
        let client = try TLSEngine(context: TLSContext(for: settings, ticketClock: { 0 }), settings: settings)
        let peer = try RawPeer(serving: ShowingServer.connection(showing: shown))
        var trusted = false
        for _ in 0..<10 {
            switch client.handshake() {
            case .failed(let error):
                guard let code = error.verifyCode else { throw TestFailure(what: "\(error): \(description)") }
                return (ChainVerdict(code: code), false)
            case .awaitingTrust(let trust):
                if case .untrusted(_, let code, let depth) = trust.verdict {
                    return (ChainVerdict(code: code, depth: depth), true)
                }
                trusted = true
                if leafIsNotForHandshakes { return (ChainVerdict(), true) }
                client.decideTrust(true)
            case .complete: return (ChainVerdict(), trusted)
            case .incomplete: break
            case .awaitingSettings, .awaitingWork: throw TestFailure(what: "another question: \(description)")
            }
            peer.carryFrom(client)
            ERR_clear_error()
            SSL_do_handshake(peer.ssl)
            peer.carryTo(client)
        }
        throw TestFailure(what: "incomplete: \(OpenSSLCallQueue.texts) \(description)")
    }

    var leafIsNotForHandshakes: Bool { shown[0].plan.isNotForHandshakes }

    private func settings() throws -> TLSClientSettings {
        var settings = TLSSettings.client(serverName: serverName)
        settings.trustRoots = .certificates(try roots.map { try TLSCertificate(der: $0.bytes) })
        settings.verifiesHostName = verifiesHostName
        settings.values.rules.isStrict = isStrict
        settings.values.rules.acceptsPartialChains = acceptsPartialChains
        settings.values.rules.verificationTime = verificationTime.map { Date(timeIntervalSince1970: Double($0)) }
        settings.maximumCertificateChainLength = limit
        (settings.minimumVersion, settings.maximumVersion) = (version, version)
        settings.trustEvaluation = evaluation
        settings.resumption = .none
        return settings
    }
}

/// A bare server that sends any certificates, however invalid.
private enum ShowingServer {
    nonisolated(unsafe) private static let context: OpaquePointer? = {
        let context = SSL_CTX_new(TLS_server_method())
        SSL_CTX_set_security_level(context, 0)
        SSL_CTX_set_num_tickets(context, 0)
        return context
    }()

    static func connection(showing chain: [PlannedCertificate]) throws -> OpaquePointer? {
        let ssl = SSL_new(context)
        ERR_clear_error()
        guard SSL_use_certificate(ssl, chain[0].x509) == 1, SSL_use_PrivateKey(ssl, chain[0].plan.key.pointer) == 1 else {
            SSL_free(ssl)
            throw TestFailure(what: "identity: \(OpenSSLCallQueue.texts)")
        }
        for certificate in chain.dropFirst() {
            // SSL_add1_chain_cert
            SSL_ctrl(ssl, SSL_CTRL_CHAIN_CERT, 1, UnsafeMutableRawPointer(certificate.x509))
        }
        return ssl
    }
}
