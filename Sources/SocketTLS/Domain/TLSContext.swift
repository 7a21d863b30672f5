// Rules for contexts:
//  1. A context holds state that many connections share, and no state of a single connection: no server name,
//     timeout or trust mode.
//  2. A context never changes after it is built, except for its ticket keys, which are protected by a lock.
//     Connections on any thread may therefore share it.
//  3. Everything that openssl.cnf may change is set again after `SSL_CTX_new` (`ContextParameters`). Only a
//     security level higher than ours is kept.
//  4. OpenSSL does not cache sessions. A client receives the sessions that a server offers
//     (`ClientResumption`), unless its settings disable resumption. A server issues tickets if its settings
//     enable them (`SessionTickets`).

internal import COpenSSL
internal import SocketBuffers
internal import Synchronization

/// Owns one `SSL_CTX`, which contains the versions, identity, roots and protocols. Connections with equal
/// values of `ContextKey` share it.
package final class TLSContext: Sendable {
    /// Creates a context that is not shared. `ticketClock` determines the age of its session tickets, in
    /// seconds.
    package convenience init<Side>(
        for settings: TLSSettings<Side>, record: EarlyDataRecord? = nil, ticketClock: (@Sendable () -> Int)?
    ) throws(TLSError) {
        try settings.values.validate()
        try self.init(ContextKey(settings.values), record: record, ticketClock: ticketClock)
    }

    let handle: ContextHandle
    package let transport: TLSTransport
    private let applicationProtocols: ApplicationProtocols?
    let tickets: SessionTickets?
    /// The contexts for the settings in `TLSServerNames.all`, with the same indices.
    let named: [TLSContext]
    private let keyLog: KeyLogFile?
    private let stapledResponses: StapledResponses?
    let ticketCount: Int
    let acceptsEarlyData: Bool
    /// Whether a server requests client certificates after the handshake, when the program calls for it,
    /// instead of during the handshake.
    let requestsClientCertificates: Bool
    let earlyDataResponder: TLSEarlyDataResponder?
    let workKey: WorkKey
    /// The scope shared by the sessions of this context's clients, or `nil` if the clients do not resume
    /// sessions.
    let resumptionScope: ResumptionScope?
    let domain: SecurityDomain

    init(
        _ key: ContextKey, record: EarlyDataRecord? = nil, ticketClock: (@Sendable () -> Int)? = nil
    ) throws(TLSError) {
        transport = key.domain.transport
        handle = try ContextHandle(key)
        workKey = WorkKey(key.domain.identities.first { $0.privateKey.signsSlowly }?.certificateChain.first)
        domain = key.domain
        applicationProtocols =
            key.domain.applicationProtocols.isEmpty ? nil : ApplicationProtocols(key.domain.applicationProtocols)
        tickets =
            key.tickets != .none
            ? try SessionTickets(
                keysFrom: key.tickets.keySource, earlyDataLimit: key.acceptedEarlyData?.maximumBytes ?? 0, record: record,
                requiresFIPS: key.domain.policy.requiresFIPS,
                facts: { EngineCallbacks.facts(of: $0)?.tickets ?? TicketFacts() }, clock: ticketClock)
            : nil
        requestsClientCertificates = key.isServer && key.domain.clientCertificates == .onRequest
        acceptsEarlyData = key.acceptedEarlyData != nil
        earlyDataResponder = key.acceptedEarlyData?.responder
        ticketCount = key.tickets.count
        named = try (key.serverNames?.all ?? []).map { settings throws(TLSError) in
            try TLSContext(ContextKey(settings, over: key.domain.transport), ticketClock: ticketClock)
        }
        resumptionScope = key.resumesSessions ? key.domain.clientScope : nil
        keyLog = try key.domain.keyLogFile.map { path throws(TLSError) in try KeyLogFile(path: path) }
        stapledResponses = key.isServer ? StapledResponses(of: key.domain.identities) : nil
        let context = handle.context
        try Self.setVersions(key, on: context)
        try Self.setOptions(key, on: context)
        try ContextParameters(policy: key.domain.policy, proof: domain.proof).set(
            on: context, verifiesPeer: key.verifiesPeer)
        for identity in key.domain.identities { try Self.show(identity, on: context) }
        try stapledResponses?.staple(on: context)
        try Self.setVerification(key, on: context)
        if key.isServer, key.verifiesPeer || tickets != nil { try Self.identifySessions(key, on: context) }
        try negotiateProtocols(key, on: context)
        try tickets?.issue(on: context)
        try keyLog?.observe(context)
        if key.acknowledgesServerName { COpenSSL_CTX_acknowledgeServerName(context) }
        if key.resumesSessions { EngineCallbacks.reportSessions(of: context) }
        if key.signsSlowly { EngineCallbacks.stopBeforeSigning(on: context) }
        try domain.certificateType.present(on: context, isServer: key.isServer)
        try domain.proof.expect(on: context, isServer: key.isServer, allowsTLS12: domain.minimumVersion < .tls13)
        try EngineCallbacks.install(on: context, judgesClients: key.isServer && key.verifiesPeer)
    }

    package var options: UInt64 { SSL_CTX_get_options(handle.context) }

    private static func setVersions(_ key: ContextKey, on context: OpaquePointer) throws(TLSError) {
        try OpenSSLCall.requireSuccess("SSL_CTX_set_min_proto_version") {
            COpenSSL_CTX_setMinimumVersion(context, key.domain.minimumVersion.wireNumber)
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_max_proto_version") {
            COpenSSL_CTX_setMaximumVersion(context, key.domain.maximumVersion?.wireNumber ?? 0)
        }
    }

    private static func setOptions(_ key: ContextKey, on context: OpaquePointer) throws(TLSError) {
        COpenSSL_CTX_setMode(context, COpenSSL_engineModes())
        SSL_CTX_clear_options(context, UInt64.max)
        SSL_CTX_set_options(
            context, COpenSSL_commonOptions() | COpenSSL_noTicketOption() | COpenSSL_noCertificateCompressionOptions())
        if key.domain.transport == .datagrams { DTLSCookies.prepare(context) }
        COpenSSL_CTX_disableSessionCache(context)
        try OpenSSLCall.requireSuccess("SSL_CTX_set_num_tickets") { SSL_CTX_set_num_tickets(context, 0) }
    }

    private static func show(_ identity: TLSIdentity, on context: OpaquePointer) throws(TLSError) {
        for (index, certificate) in identity.certificateChain.enumerated() {
            let call = index == 0 ? SSL_CTX_use_certificate : COpenSSL_CTX_addChainCertificate
            let (isUsed, entries) = OpenSSLCall.attempt { call(context, certificate.handle.x509) > 0 ? true : nil }
            if isUsed == nil { throw unusable(certificate, at: index, entries) }
        }
        try OpenSSLCall.requireSuccess(
            "SSL_CTX_use_PrivateKey", or: .invalidPrivateKey,
            "the private key of \"\(identity.certificateChain.first?.displayName ?? "")\" cannot be used for TLS"
        ) { SSL_CTX_use_PrivateKey(context, identity.privateKey.handle.key) }
    }

    private static func unusable(
        _ certificate: TLSCertificate, at index: Int, _ entries: [OpenSSLError]
    ) -> TLSError {
        let place = index == 0 ? "" : " (number \(index + 1) in the chain)"
        let reason = entries.last.map { ": \($0.text)" } ?? ""
        return TLSError(
            .invalidCertificate, "the certificate of \"\(certificate.displayName)\"\(place) cannot be used for TLS\(reason)",
            operation: index == 0 ? "SSL_CTX_use_certificate" : "SSL_CTX_add1_chain_cert", openSSLStack: entries.map(\.text))
    }

    private static func setVerification(_ key: ContextKey, on context: OpaquePointer) throws(TLSError) {
        COpenSSL_CTX_setMaximumChainBytes(context, key.domain.maximumCertificateChainBytes)
        SSL_CTX_set_verify_depth(context, Int32(key.domain.maximumCertificateChainLength))
        guard key.verifiesPeer else { return SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nil) }
        let store = try key.domain.roots.trustStore(isChanged: key.domain.rules.revocation != nil)
        try key.domain.rules.revocation?.add(to: store)
        store.share(with: context)
        if key.domain.stapling != .none { try StapledStatus.request(on: context) }
        try key.domain.rules.apply(to: context)
        let requires = !key.isServer || key.domain.clientCertificates == .required
        // In TLS 1.2, certificates cannot be requested after the handshake, so OpenSSL would request them
        // during the handshake.
        let mode = key.domain.clientCertificates == .onRequest ? SSL_VERIFY_NONE : SSL_VERIFY_PEER
        SSL_CTX_set_verify(context, requires ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : mode, nil)
        if key.isServer { try nameAcceptedIssuers(key, on: context) }
    }

    /// Sets an identifier that distinguishes the sessions of this context from the sessions of all other
    /// contexts or, with shared ticket keys, of contexts with other settings. Without an identifier, OpenSSL
    /// aborts after receiving a client certificate.
    private static func identifySessions(_ key: ContextKey, on context: OpaquePointer) throws(TLSError) {
        var identifier = [UInt8](repeating: 0, count: Int(SSL_MAX_SID_CTX_LENGTH))
        if key.tickets.keySource != nil {
            identifier = try key.domain.serverScope().digest
        } else {
            try OpenSSLCall.requireSuccess("RAND_bytes") { RAND_bytes(&identifier, Int32(identifier.count)) }
        }
        try OpenSSLCall.requireSuccess("SSL_CTX_set_session_id_context") {
            SSL_CTX_set_session_id_context(context, identifier, UInt32(identifier.count))
        }
    }

    /// Sends the names of the accepted issuers to clients, so that they can choose a certificate. The names
    /// of the system's roots are not sent, because the list would be far too long.
    private static func nameAcceptedIssuers(_ key: ContextKey, on context: OpaquePointer) throws(TLSError) {
        let certificates = try key.domain.roots.listedCertificates()
        let names = try OpenSSLCall.require("sk_X509_NAME_new_null", or: .internalError, noMemoryForNames) {
            COpenSSL_sk_X509_NAME_new()
        }
        // The context now owns the names, even if adding one fails.
        SSL_CTX_set_client_CA_list(context, names)
        for certificate in certificates {
            let name = try OpenSSLCall.require("X509_NAME_dup", or: .internalError, noMemoryForNames) {
                X509_NAME_dup(X509_get_subject_name(certificate.handle.x509))
            }
            try OpenSSLCall.requireSuccess("sk_X509_NAME_push", noMemoryForNames) {
                let count = COpenSSL_sk_X509_NAME_push(names, name)
                if count <= 0 { X509_NAME_free(name) }
                return count
            }
        }
    }

    private static let noMemoryForNames = "OpenSSL is out of memory"

    private func negotiateProtocols(_ key: ContextKey, on context: OpaquePointer) throws(TLSError) {
        guard let applicationProtocols else { return }
        if key.isServer {
            applicationProtocols.choose(on: context)
        } else {
            try OpenSSLCall.requireSuccess("SSL_CTX_set_alpn_protos") { applicationProtocols.offer(on: context) }
        }
    }
}

final class ContextHandle: @unchecked Sendable {
    // Unchecked: one thread sets up the context. After that, OpenSSL only reads it and counts references. The
    // exceptions are the ticket keys that its callbacks use, which are protected by a lock
    // (`SessionTickets`).
    let context: OpaquePointer
    let requiresFIPS: Bool

    init(_ key: ContextKey) throws(TLSError) {
        let requiresFIPS = key.domain.policy.requiresFIPS
        self.requiresFIPS = requiresFIPS
        if requiresFIPS { try FIPSProvider.require() }
        let method = Self.method(isServer: key.isServer, over: key.domain.transport)
        context = try OpenSSLCall.require("SSL_CTX_new_ex", or: .internalError, "OpenSSL cannot create a TLS context") {
            SSL_CTX_new_ex(nil, requiresFIPS ? "fips=yes" : nil, method)
        }
    }

    private static func method(isServer: Bool, over transport: TLSTransport) -> OpaquePointer? {
        switch transport {
        case .stream: isServer ? TLS_server_method() : TLS_client_method()
        case .datagrams: isServer ? DTLS_server_method() : DTLS_client_method()
        }
    }

    deinit { SSL_CTX_free(context) }
}

/// The resource that a step of a handshake needs. Steps with different keys take turns, so that steps that
/// need a slow resource do not delay all other steps.
package enum WorkKey: Hashable, Sendable {
    /// Steps that need this slow private key. The number is a digest of its public key.
    case signing(Int)
    /// Steps that verify chains for this context, which has no slow key.
    case verifying(Int)

    private static let lastContext = Atomic(0)

    /// - Parameter slow: The certificate of a slow key. Certificates with the same public key result in
    ///   the same `WorkKey`.
    init(_ slow: TLSCertificate?) {
        guard let slow else {
            self = .verifying(Self.lastContext.add(1, ordering: .relaxed).newValue)
            return
        }
        let digest = DigestFields.digest { $0.append(slow.publicKeySHA256) }
        self = .signing(digest.prefix(8).reduce(0) { $0 << 8 | Int($1) })
    }
}

extension TLSContext {
    /// Returns a context for settings whose `serverName` may be missing. A context does not contain the name.
    static func withoutName(for settings: TLSSettingValues) throws(TLSError) -> TLSContext {
        let named = settings.named
        try named.validate()
        return try TLSContext(ContextKey(named))
    }
}
