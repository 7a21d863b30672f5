internal import FoundationEssentials
internal import Glibc

/// The result of an inspection, and the JSON object that `--json` prints for it.
///
/// Members without a value are omitted. Members may be added, but are not renamed or removed. Dates are in
/// ISO 8601. Documentation/sockcat-JSON.md describes each member.
struct InspectionReport: Codable, Equatable, Sendable {
    /// The server or file, as on the command line: "mail.example.org:993" or the path of a file.
    var target: String
    var kind: Kind
    var inspectedAt: Date
    var status: Status
    /// Why no handshake was completed, or why the server refused the client.
    var failure: FailureReport?
    /// The record that named the server, if its domain was inspected.
    var origin: OriginReport?
    /// The address that the connection was made to.
    var address: String?
    /// The name that the certificate must have.
    var serverName: String?
    var session: SessionReport?
    /// Whether the chain in a file is trusted, if it was verified.
    var chain: ChainReport?
    /// Whether the server matches its TLSA records, if there are any.
    var dane: DANEReport?
    var clientCertificate: ClientCertificateReport?
    /// The certificates in the order in which the server sent them, or in which the file contains them.
    var certificates: [CertificateReport] = []
    /// The days until the first certificate expires. Negative if it has expired.
    var daysLeft: Int?
    var capabilities: CapabilityReport?
    var problems: [Problem] = []

    enum Kind: String, Codable, Sendable { case server, file }

    /// The most serious finding, which determines the exit code.
    enum Status: String, Codable, Sendable, CaseIterable {
        case ok, expiresSoon, untrusted, handshakeFailed, timedOut, connectFailed, fileFailed, failed
    }
}

/// The verification of the chain in a file.
struct ChainReport: Codable, Equatable, Sendable {
    var isTrusted: Bool
    /// The side to which the certificate belongs.
    var purpose: Purpose

    enum Purpose: String, Codable, Sendable, CaseIterable { case server, client }
}

/// Why an inspection failed.
struct FailureReport: Codable, Equatable, Sendable {
    var message: String
    var advice: String?
}

/// The parameters that the server negotiated with a client that prefers the newest algorithms.
struct SessionReport: Codable, Equatable, Sendable {
    var version: String
    var cipherSuite: String
    var group: String?
    /// The algorithm with which the server signed the handshake.
    var signature: String?
    var applicationProtocol: String?
    var isTrusted: Bool
    var stapling: Stapling

    enum Stapling: String, Codable, Sendable {
        /// The server sent no OCSP response.
        case notSent
        /// The server sent a response that states that the certificate is not revoked.
        case good
        /// The server sent a response that cannot be checked, because its certificate's issuer is unknown.
        case unchecked
        /// The server sent a response that a client must reject, or sent no response although its certificate
        /// requires one.
        case rejected
    }
}

/// The features that a server supports, as far as they can be tested.
struct CapabilityReport: Codable, Equatable, Sendable {
    var resumption: Support
    var earlyData: Support
    /// The most bytes of early data that the server accepts.
    var earlyDataBytes: Int?
    /// Each version from TLS 1.0 to 1.3, by its name.
    var versions: [String: Support] = [:]
    /// The oldest version that the server accepted.
    var oldestVersion: String?
    /// The weakest of the weak cipher suites that the server accepted, or `nil` if it accepted no weak suite.
    var weakestSuite: String?
    /// The kinds of suites, from the weakest to the first kind that the server accepted.
    var suites: [SuiteReport] = []

    /// The weakest kind of suites that the server accepts.
    var acceptedKind: String? { suites.first { $0.support == .accepted }?.kind }
}

/// Whether a server accepts the suites of one kind.
struct SuiteReport: Codable, Equatable, Sendable {
    var kind: String
    var support: Support
}

/// Whether a server supports a feature.
enum Support: String, Codable, Sendable {
    case accepted, notAccepted
    /// The attempt failed for another reason than a rejection, such as a time limit.
    case notTestable
}

/// One problem, in one line.
struct Problem: Codable, Equatable, Hashable, Sendable {
    var severity: Severity
    var code: Code
    var message: String

    enum Severity: String, Codable, Sendable {
        /// A client that verifies certificates rejects the server, or will do so soon.
        case error
        /// A weakness that does not stop clients.
        case warning
    }

    enum Code: String, Codable, Sendable, CaseIterable {
        case expired, notYetValid, nameMismatch, unknownIssuer, revoked, rejected, pinMismatch, expiresSoon, stapling,
            tlsaMismatch
        case unreadableDate, unconfirmed, withheld
        case noTLSARecords, tlsaLookUpFailed, unsignedOrigin
        case weakKey, weakSignature, noNames, chainOrder, needlessRoot, oldVersion, weakSuite, noTLS13
    }

    static func error(_ code: Code, _ message: String) -> Problem { Problem(severity: .error, code: code, message: message) }

    static func warning(_ code: Code, _ message: String) -> Problem {
        Problem(severity: .warning, code: code, message: message)
    }
}

extension InspectionReport.Status {
    /// The exit code. If several targets were inspected, the most serious status determines it.
    var exitStatus: ExitStatus {
        switch self {
        case .ok: .success
        case .expiresSoon: .expiresSoon
        case .untrusted: .untrusted
        case .handshakeFailed: .handshakeFailed
        case .timedOut: .timedOut
        case .connectFailed: .connectFailed
        case .fileFailed: .fileFailed
        case .failed: .failure
        }
    }

    var severity: Int { Self.allCases.firstIndex(of: self) ?? 0 }
}
