internal import AsyncSockets

/// Whether a server requests a certificate from its clients, and what happened to the client's certificate.
struct ClientCertificateReport: Codable, Equatable, Sendable {
    var request: Request
    /// The authorities from which the server accepts certificates. Empty if it named no authorities.
    var authorities: [String] = []
    /// What happened to the certificate of `--cert`, or `nil` if no certificate was given.
    var presentation: Presentation?

    enum Request: String, Codable, Sendable, CaseIterable {
        case notRequested
        /// Whether the server requires a certificate is unknown: it received one, or has not confirmed that
        /// it accepts a client without a certificate.
        case requested
        /// The server accepted a client without a certificate.
        case optional
        /// The server refused a client without a certificate.
        case required
    }

    enum Presentation: String, Codable, Sendable, CaseIterable {
        case accepted, refused
        /// The server neither accepted nor refused the certificate in time.
        case notConfirmed
        /// The server is not trusted, so the certificate was not sent.
        case withheld
        /// The server did not request a certificate, so the certificate was not sent.
        case notRequested
    }
}

extension ClientCertificateReport {
    /// Returns `nil` if the handshake failed before the server could request a certificate.
    init?(_ observation: Observation, hasIdentity: Bool) {
        guard observation.request != nil || observation.session != nil else { return nil }
        request = Self.request(in: observation)
        authorities = observation.request?.authorities ?? []
        presentation = hasIdentity ? Self.presentation(in: observation) : nil
    }

    private static func request(in observation: Observation) -> Request {
        if observation.request == nil { return .notRequested }
        if observation.presentsIdentity { return .requested }
        if observation.isRefused { return .required }
        return observation.verdict == .accepted ? .optional : .requested
    }

    private static func presentation(in observation: Observation) -> Presentation {
        if !observation.presentsIdentity { return .withheld }
        if observation.request == nil { return .notRequested }
        if observation.isRefused { return .refused }
        return observation.verdict == .accepted ? .accepted : .notConfirmed
    }

    var problems: [Problem] {
        switch presentation {
        case .notConfirmed:
            [.warning(.unconfirmed, "the server has not confirmed that it accepts the client's certificate")]
        case .withheld:
            [.warning(.withheld, "the client's certificate was not sent, because the server is not trusted")]
        case .accepted, .refused, .notRequested, nil: []
        }
    }
}

extension Observation {
    /// Whether the server refused the client after it had requested a certificate, rather than failing in
    /// another way.
    fileprivate var isRefused: Bool { request != nil && failure?.status == .handshakeFailed }
}
