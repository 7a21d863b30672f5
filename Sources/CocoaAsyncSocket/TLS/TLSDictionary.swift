// Rules of the dictionary:
//  1. A key that CocoaAsyncSocket rejects on Apple platforms is rejected with the same message. A value of
//     the wrong type is rejected with a message that names the key. A rejection closes the connection.
//  2. Settings can make verification stricter, but not weaker. The exception is
//     `GCDAsyncSocketManuallyEvaluateTrust`, which moves the decision from OpenSSL to the delegate. In this
//     mode, an empty name disables the verification of the name.
//  3. Versions and cipher suites that are too weak are dropped. If no version or cipher suite remains, the
//     settings are rejected.
//  4. Unknown keys are ignored, as on Apple platforms.

internal import AsyncSockets
internal import Foundation
internal import SocketBuffers
internal import SocketTLS

/// Reads the settings of `startTLS(_:)` from its dictionary.
struct TLSDictionary {
    typealias Refusal = TLSDictionaryValues.Refusal

    enum Settings {
        case client(TLSClientSettings)
        case server(TLSServerSettings)
    }

    private let values: TLSDictionaryValues
    private var policy = TLSPolicy.intermediate
    private var minimum = TLSProtocolVersion.tls12
    private var maximum: TLSProtocolVersion?

    static func read(
        _ dictionary: [String: NSObject], host: String?
    ) throws(Refusal) -> (Settings, EvaluationSettings) {
        var reader = TLSDictionary(values: try TLSDictionaryValues(dictionary))
        return try reader.settings(host: host)
    }

    private init(values: TLSDictionaryValues) {
        self.values = values
    }

    private mutating func settings(host: String?) throws(Refusal) -> (Settings, EvaluationSettings) {
        let isManual = try values.isTrue(GCDAsyncSocketManuallyEvaluateTrust)
        try readVersions()
        try readCipherSuites()
        try checkKeysWithoutEffect()
        let anchors = try values.array(GCDAsyncSocketSSLAnchorCertificates, "SecCertificate") { SecCertificate.certificate($0) }
        guard try values.isTrue(GCDAsyncSocketSSLIsServer) else {
            let named = try values.string(GCDAsyncSocketSSLPeerName).map { HostLookup.text($0) }
            // An empty name disables the name check if the delegate decides. Otherwise it is rejected.
            let name = named?.isEmpty == true && isManual ? nil : named ?? host
            let client = try client(expecting: name, isManual: isManual, anchors)
            return (.client(client), EvaluationSettings(anchors: anchors, serverName: name))
        }
        return (.server(try server(isManual: isManual, anchors)), EvaluationSettings(anchors: anchors, peer: .client))
    }

    // MARK: - The two sides

    /// - Parameter name: The expected name. If it is `nil`, the core rejects the settings, unless the
    ///   delegate decides.
    private func client(
        expecting name: String?, isManual: Bool, _ anchors: [TLSCertificate]?
    ) throws(Refusal) -> TLSClientSettings {
        var settings = name.map { TLSClientSettings.client(serverName: $0) } ?? .client
        if name == nil, isManual {
            // No name is available to verify or to send, so the server name is an address, which is never
            // sent as SNI. The delegate makes the trust decision.
            settings = .client(serverName: "0.0.0.0")
            settings.verifiesHostName = false
        }
        settings.proof = .certificates(rules(anchors))
        try complete(&settings, isManual: isManual, anchors)
        settings.resumption = try values.data(GCDAsyncSocketSSLPeerID).map { .store(PeerSessions.shared.store(for: $0)) } ?? .none
        return settings
    }

    private func server(isManual: Bool, _ anchors: [TLSCertificate]?) throws(Refusal) -> TLSServerSettings {
        _ = try values.string(GCDAsyncSocketSSLPeerName)
        _ = try values.data(GCDAsyncSocketSSLPeerID)
        guard let identity = try identity() else {
            throw .init(message: "a server needs an identity: set kCFStreamSSLCertificates")
        }
        var settings = TLSServerSettings.server(identity: identity)
        if let certificates = try clientCertificates() {
            settings.clients = .certificates(certificates, rules(anchors))
        } else if isManual {
            throw .init(message: "Manual trust validation is not supported for server sockets")
        }
        try complete(&settings, isManual: isManual, anchors)
        return settings
    }

    private func complete<Side>(
        _ settings: inout TLSSettings<Side>, isManual: Bool, _ anchors: [TLSCertificate]?
    ) throws(Refusal) {
        settings.identity = try identity()
        settings.policy = policy
        settings.minimumVersion = minimum
        settings.maximumVersion = maximum
        settings.applicationProtocols = try values.array(GCDAsyncSocketSSLALPN, "NSString") { $0 as? String } ?? []
        if let anchors { settings.trustRoots = .certificates(anchors) }
        if isManual { settings.trustEvaluation = .manual }
        // The delegate may have to prompt a user.
        settings.trustTimeout = .seconds(300)
    }

    /// Returns rules that accept partial chains if anchors are set, because an anchor need not be
    /// self-signed.
    private func rules(_ anchors: [TLSCertificate]?) -> TLSCertificateRules {
        TLSCertificateRules(acceptsPartialChains: anchors != nil)
    }

    /// Returns `nil` if the server should not request a certificate.
    private func clientCertificates() throws(Refusal) -> TLSClientCertificates? {
        let key = GCDAsyncSocketSSLClientAuthentication
        guard let number = try values.number(key) else { return nil }
        switch SSLAuthenticate(rawValue: number.int32Value) {
        case .neverAuthenticate: return nil
        case .alwaysAuthenticate: return .required
        case .tryAuthenticate: return .optional
        case nil: throw .init(message: "Invalid value for \(key). There is no SSLAuthenticate with the number \(number).")
        }
    }

    // MARK: - The identity

    private func identity() throws(Refusal) -> TLSIdentity? {
        let key = GCDAsyncSocketSSLCertificates
        guard let items = try values.array(key, "SecIdentity or SecCertificate", { $0 as? NSObject }), let first = items.first
        else {
            return nil
        }
        guard let identity = (first as? SecIdentity)?.identity else {
            throw .init(message: "Invalid value for \(key). The first item of the array must be of type SecIdentity.")
        }
        var chain: [TLSCertificate] = []
        for item in items.dropFirst() {
            guard let certificate = SecCertificate.certificate(item) else {
                throw .init(
                    message: "Invalid value for \(key). The items after the first one must be of type SecCertificate.")
            }
            chain.append(certificate)
        }
        // If the array contains only an identity, the chain from its PKCS#12 file is used.
        guard !chain.isEmpty, let leaf = identity.certificateChain.first else { return identity }
        do throws(TLSError) {
            return try TLSIdentity(
                certificateChain: [leaf] + chain.filter { $0 != leaf }, privateKey: identity.privateKey)
        } catch {
            throw .init(message: error.message)
        }
    }

    // MARK: - Versions and algorithms

    private mutating func readVersions() throws(Refusal) {
        if let oldest = try version(GCDAsyncSocketSSLProtocolVersionMin) {
            minimum = try Self.oldest(oldest)
        }
        if let newest = try version(GCDAsyncSocketSSLProtocolVersionMax) {
            maximum = try Self.newest(newest)
        }
    }

    private func version(_ key: String) throws(Refusal) -> SSLProtocol? {
        guard let number = try values.number(key) else { return nil }
        guard let version = SSLProtocol(rawValue: number.int32Value) else {
            throw .init(message: "Invalid value for \(key). There is no SSLProtocol with the number \(number).")
        }
        return version == .sslProtocolUnknown ? nil : version
    }

    private static func oldest(_ version: SSLProtocol) throws(Refusal) -> TLSProtocolVersion {
        switch version {
        case .sslProtocolUnknown, .sslProtocol2, .sslProtocol3, .tlsProtocol1, .tlsProtocol11, .tlsProtocol12: .tls12
        case .tlsProtocol13, .tlsProtocolMaxSupported: .tls13
        case .sslProtocol3Only, .tlsProtocol1Only, .sslProtocolAll, .dtlsProtocol1, .dtlsProtocol12:
            throw .init(message: "Error in SSLSetProtocolVersionMin: \(version) cannot be used as the minimum TLS version")
        }
    }

    private static func newest(_ version: SSLProtocol) throws(Refusal) -> TLSProtocolVersion? {
        switch version {
        case .sslProtocolUnknown, .tlsProtocolMaxSupported: nil
        case .tlsProtocol12: .tls12
        case .tlsProtocol13: .tls13
        case .sslProtocol2, .sslProtocol3, .sslProtocol3Only, .tlsProtocol1, .tlsProtocol1Only, .tlsProtocol11:
            throw .init(message: "Error in SSLSetProtocolVersionMax: \(version) is older than TLS 1.2")
        case .sslProtocolAll, .dtlsProtocol1, .dtlsProtocol12:
            throw .init(message: "Error in SSLSetProtocolVersionMax: \(version) cannot be used as the maximum TLS version")
        }
    }

    private mutating func readCipherSuites() throws(Refusal) {
        let key = GCDAsyncSocketSSLCipherSuites
        guard let numbers = try values.array(key, "NSNumber", { $0 as? NSNumber }) else { return }
        let suites = numbers.compactMap { SSLCipherSuite(exactly: $0.int64Value) }
        let names13 = suites.compactMap { CipherSuiteNames.ofTLS13[$0] }
        let names12 = suites.compactMap { CipherSuiteNames.ofTLS12[$0] }
        // The list determines the allowed suites, so a version without a suite in the list is disabled.
        if names13.isEmpty { maximum = .tls12 }
        if names12.isEmpty { minimum = .tls13 }
        guard !(names12 + names13).isEmpty, maximum.map({ minimum <= $0 }) ?? true else {
            throw .init(message: "Error in SSLSetEnabledCiphers: no suite in \(key) can be used with the enabled TLS versions")
        }
        var seen: Set<String> = []
        policy.cipherSuites = (names13 + names12).filter { seen.insert($0).inserted }
    }

    private func checkKeysWithoutEffect() throws(Refusal) {
        _ = try values.number(GCDAsyncSocketSSLSessionOptionFalseStart)
        _ = try values.number(GCDAsyncSocketSSLSessionOptionSendOneByteRecord)
        _ = try values.data(GCDAsyncSocketSSLDiffieHellmanParameters)
        _ = try values.number(GCDAsyncSocketUseCFStreamForTLS)
    }
}

/// The resumable sessions of clients, by `GCDAsyncSocketSSLPeerID`.
final class PeerSessions: Sendable {
    static let shared = PeerSessions()

    private struct Entry {
        let peerID: Data
        let sessions: TLSInMemorySessionStore
    }

    /// Least recently used first.
    private let entries = Locked<[Entry]>([])
    private static let limit = 64

    func store(for peerID: Data) -> TLSInMemorySessionStore {
        entries.withLock { entries in
            let sessions = entries.first { $0.peerID == peerID }?.sessions ?? TLSInMemorySessionStore()
            entries.removeAll { $0.peerID == peerID }
            entries.append(Entry(peerID: peerID, sessions: sessions))
            if entries.count > Self.limit { entries.removeFirst() }
            return sessions
        }
    }
}
