internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// Inspects one server: its certificates, the negotiated session, and the versions and suites that it
/// accepts.
struct ServerInspector: Sendable {
    private let connection: ServerConnection
    private let observer: SessionObserver
    private let choices: InspectionChoices

    private init(_ target: ServerTarget, _ choices: InspectionChoices, _ evidence: DANEEvidence) {
        connection = ServerConnection(target: target, choices: choices, evidence: evidence)
        observer = SessionObserver(connection: connection)
        self.choices = choices
    }

    /// Inspects a server. Failures are part of the report.
    ///
    /// - Throws: `CancellationError`, or a failure if the choices are not possible for the server.
    static func inspect(
        _ target: ServerTarget, _ choices: InspectionChoices, resolver: Resolver = .system, at now: Date = Date()
    ) async throws -> InspectionReport {
        let evidence = try await DANEEvidence.of(target, choices.dane, within: choices.timeout, resolver: resolver)
        var report = InspectionReport(
            target: target.description, kind: .server, inspectedAt: now, status: .ok, origin: target.origin?.report,
            serverName: evidence.records?.baseDomain ?? target.expectedName)
        (report.dane, report.problems) = (evidence.report, evidence.problems)
        return try await ServerInspector(target, choices, evidence).inspect(report)
    }

    /// Returns the report about servers that were not found.
    static func report(_ failure: Failure, of name: String, at now: Date = Date()) -> InspectionReport {
        var report = InspectionReport(target: name, kind: .server, inspectedAt: now, status: status(of: failure))
        report.failure = FailureReport(message: failure.message, advice: failure.advice)
        return report
    }

    private func inspect(_ report: InspectionReport) async throws -> InspectionReport {
        var report = report
        let observation = try await observer.observe()
        describe(observation, in: &report)
        if choices.probes, report.failure == nil || report.status == .handshakeFailed {
            try await describeCapabilities(observation, in: &report)
        }
        conclude(&report)
        return report
    }

    static func status(of failure: Failure) -> InspectionReport.Status {
        switch failure.status {
        case .connectFailed: .connectFailed
        case .timedOut: .timedOut
        case .handshakeFailed, .connectionLost: .handshakeFailed
        case .untrusted: .untrusted
        default: .failed
        }
    }

    // MARK: - The session

    private func describe(_ observation: Observation, in report: inout InspectionReport) {
        report.address = observation.address
        report.certificates = observation.certificates.map { CertificateReport($0, at: report.inspectedAt) }
        report.clientCertificate = ClientCertificateReport(observation, hasIdentity: choices.identity != nil)
        if let failure = observation.failure { describe(failure, in: &report) }
        describeRecords(observation, in: &report)
        let faults = observation.trust.map { Assessment.problems(of: $0) } ?? []
        // The issuer signs the response, so it must be known.
        let isCheckable = !faults.contains { $0.code == .unknownIssuer }
        if isCheckable, let fault = observation.staplingFault {
            report.problems.append(.error(fault.code == .certificateRevoked ? .revoked : .stapling, fault.message))
        }
        report.problems += faults + (report.clientCertificate?.problems ?? [])
        guard let session = observation.session else { return }
        report.session = SessionReport(
            version: "\(session.protocolVersion)", cipherSuite: session.cipherSuite, group: session.group,
            signature: session.peerSignatureAlgorithm, applicationProtocol: session.applicationProtocol,
            isTrusted: observation.trust?.verdict == .trusted && observation.staplingFault == nil
                && observation.recordsFault == nil && connection.evidence.permitsTrust,
            stapling: Self.stapling(of: session, observation.staplingFault, isCheckable: isCheckable))
        if !choices.pins.isEmpty, !matchesPins(session) {
            report.problems.append(.error(.pinMismatch, "no certificate in the server's chain has a key that matches --pin"))
        }
    }

    /// Without a handshake, it is not known whether the server matches its records.
    private func describeRecords(_ observation: Observation, in report: inout InspectionReport) {
        guard let records = connection.records, observation.session != nil || observation.recordsFault != nil else { return }
        report.dane = DANEReport(records, observation)
        guard let fault = observation.recordsFault else { return }
        report.problems.append(.error(.tlsaMismatch, LibraryMessage.translated(fault.message)))
    }

    private func describe(_ failure: Failure, in report: inout InspectionReport) {
        // The advice for a client without a certificate is to pass one.
        let isWithheld = report.clientCertificate?.presentation == .withheld
        report.failure = FailureReport(
            message: failure.message,
            advice: isWithheld ? Self.advice(isAuthority: connection.evidence.permitsTrust) : failure.advice)
        report.status = Self.status(of: failure)
    }

    private static func advice(isAuthority: Bool) -> String {
        "the certificate of --cert is sent only if the server is trusted\(isAuthority ? ": pass --ca" : "")"
    }

    /// An unverified chain has no known root, so only the certificates that the server sent count.
    private func matchesPins(_ session: TLSSession) -> Bool {
        session.matchesPins ?? session.peerCertificates.contains { choices.pins.contains($0.publicKeySHA256) }
    }

    private static func stapling(
        of session: TLSSession, _ fault: TLSError?, isCheckable: Bool
    ) -> SessionReport.Stapling {
        if fault != nil { return isCheckable ? .rejected : .unchecked }
        return session.ocspResponse == nil ? .notSent : .good
    }

    // MARK: - Capabilities

    private func describeCapabilities(_ observation: Observation, in report: inout InspectionReport) async throws {
        var capabilities = try await resumption(of: observation)
        if !connection.target.isDatagram {
            try await CapabilityProbes(connection: connection).run(
                &capabilities, negotiated: choices.limits.isUnlimited ? report.session : nil)
        }
        // The server does not speak TLS, or its STARTTLS dialogue fails.
        if report.failure != nil, capabilities.versions.values.allSatisfy({ $0 == .notTestable }) { return }
        report.capabilities = capabilities
        report.problems += Assessment.problems(of: capabilities)
    }

    private func resumption(of observation: Observation) async throws -> CapabilityReport {
        guard let resumable = observation.resumable else {
            // Sessions have no remaining lifetime if a certificate has expired.
            let hasEnded = observation.certificates.contains { $0.notAfter < Date() }
            let support: Support = hasEnded || observation.failure != nil ? .notTestable : .notAccepted
            return CapabilityReport(resumption: support, earlyData: support)
        }
        var report = CapabilityReport(resumption: .notTestable, earlyData: .notAccepted)
        if resumable.maximumEarlyDataBytes > 0 {
            (report.earlyData, report.earlyDataBytes) = (.accepted, resumable.maximumEarlyDataBytes)
        }
        do {
            report.resumption = try await isResumed(resumable, after: observation) ? .accepted : .notAccepted
        } catch let error where error is CancellationError {
            throw error
        } catch {
            // The server accepted the first connection, so this failure says nothing about resumption.
        }
        return report
    }

    /// The session belongs to the identity with which it was negotiated.
    private func isResumed(_ session: TLSResumableSession, after observation: Observation) async throws -> Bool {
        let records = observation.recordsFault == nil ? connection.records : nil
        var settings = try connection.settings(records)
        settings.proof = observer.rules(
            observation.staplingFault == nil ? .requested : .none, records, presentsIdentity: observation.presentsIdentity)
        settings.resumption = .session(session)
        let decision = TrustDecision(presentsIdentity: observation.presentsIdentity, pins: choices.pins)
        return try await connection.handshake(settings, decision) { _, session in session.isResumed }
    }

    private func conclude(_ report: inout InspectionReport) {
        let own = Assessment.problems(of: report.certificates, days: choices.days, at: report.inspectedAt, isServer: true)
        report.problems = Assessment.merged(report.problems, own)
        report.daysLeft = report.certificates.compactMap(\.daysLeft).min()
        if report.failure == nil { report.status = Assessment.status(of: report.problems) }
    }
}
