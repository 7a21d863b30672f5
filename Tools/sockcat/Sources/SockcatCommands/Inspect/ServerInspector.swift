internal import AsyncSockets
internal import Foundation

/// Inspects one server: its certificates, the negotiated session, and the versions and suites that it
/// accepts.
struct ServerInspector: Sendable {
    private let connection: ServerConnection
    private let choices: InspectionChoices

    init(_ target: ServerTarget, _ choices: InspectionChoices) {
        connection = ServerConnection(target: target, choices: choices)
        self.choices = choices
    }

    /// Inspects the server. Failures are part of the report.
    ///
    /// - Throws: `CancellationError`.
    func inspect(at now: Date = Date()) async throws -> InspectionReport {
        var report = InspectionReport(
            target: connection.target.description, kind: .server, inspectedAt: now, status: .ok,
            serverName: connection.target.expectedName)
        do {
            try await describeSession(in: &report)
        } catch let error where error is CancellationError {
            throw error
        } catch {
            let failure = Failure(error)
            report.failure = FailureReport(message: failure.message, advice: failure.advice)
            report.status = Self.status(of: failure)
        }
        if choices.probes, report.failure == nil || report.status == .handshakeFailed {
            try await describeCapabilities(in: &report)
        }
        conclude(&report)
        return report
    }

    private static func status(of failure: Failure) -> InspectionReport.Status {
        switch failure.status {
        case .connectFailed: .connectFailed
        case .timedOut: .timedOut
        case .handshakeFailed, .connectionLost: .handshakeFailed
        case .untrusted: .untrusted
        default: .failed
        }
    }

    // MARK: - The session

    private struct Observation: Sendable {
        var session: TLSSession
        var address: String?
        var trust: PeerTrust?
        var resumable: TLSResumableSession?
        /// Why the stapled response was rejected, in which case it was not requested again.
        var staplingFault: TLSError?
    }

    private func describeSession(in report: inout InspectionReport) async throws {
        let observation = try await observe()
        let (session, trust) = (observation.session, observation.trust)
        report.address = observation.address
        report.certificates = session.peerCertificates.map { CertificateReport($0, at: report.inspectedAt) }
        let faults = trust.map { Assessment.problems(of: $0) } ?? []
        // The issuer signs the response, so it must be known.
        let isCheckable = !faults.contains { $0.code == .unknownIssuer }
        report.session = SessionReport(
            version: "\(session.protocolVersion)", cipherSuite: session.cipherSuite, group: session.group,
            signature: session.peerSignatureAlgorithm, applicationProtocol: session.applicationProtocol,
            isTrusted: trust?.verdict == .trusted && observation.staplingFault == nil,
            stapling: Self.stapling(of: observation, isCheckable: isCheckable))
        if isCheckable, let fault = observation.staplingFault {
            report.problems.append(.error(fault.code == .certificateRevoked ? .revoked : .stapling, fault.message))
        }
        report.problems += faults
        if !choices.pins.isEmpty, !matchesPins(session) {
            report.problems.append(.error(.pinMismatch, "no certificate in the server's chain has a key that matches --pin"))
        }
        if choices.probes {
            report.capabilities = try await resumption(
                of: observation, hasEnded: report.certificates.contains { ($0.daysLeft ?? -1) < 0 })
        }
    }

    /// An unverified chain has no known root, so only the certificates that the server sent count.
    private func matchesPins(_ session: TLSSession) -> Bool {
        session.matchesPins ?? session.peerCertificates.contains { choices.pins.contains($0.publicKeySHA256) }
    }

    private static func stapling(of observation: Observation, isCheckable: Bool) -> SessionReport.Stapling {
        if observation.staplingFault != nil { return isCheckable ? .rejected : .unchecked }
        return observation.session.ocspResponse == nil ? .notSent : .good
    }

    private func rules(_ stapling: TLSOCSPStapling) -> TLSServerProof {
        let rules =
            choices.pins.isEmpty
            ? TLSCertificateRules() : TLSCertificateRules(pins: choices.pins, onlyReportsPins: true)
        return .certificates(rules, ocspStapling: stapling)
    }

    private func observe() async throws -> Observation {
        do {
            return try await observe(.requested)
        } catch let error as AsyncSocketError {
            // The trust callback accepts every chain, so only the stapled response can have been rejected, or
            // a chain that is too large, which is rejected again.
            guard let fault = error.tls, fault.fault == .certificate else { throw error }
            var observation = try await observe(.none)
            observation.staplingFault = fault
            return observation
        }
    }

    private func observe(_ stapling: TLSOCSPStapling) async throws -> Observation {
        let (record, collector) = (TrustRecord(), SessionCollector())
        var settings = try connection.settings()
        settings.proof = rules(stapling)
        if choices.probes { settings.resumption = .store(collector) }
        let wait = choices.probes ? min(choices.timeout, .seconds(1)) : .zero
        return try await connection.handshake(settings, trust: { record.accept($0) }) { socket, session in
            let address = socket.connectedAddress.map { "\($0)" }
            let resumable = wait > .zero ? await collector.session(on: socket, within: wait) : nil
            return Observation(session: session, address: address, trust: record.trust, resumable: resumable)
        }
    }

    // MARK: - Resumption

    /// - Parameter hasEnded: Whether a certificate has expired. Sessions then have no remaining lifetime.
    private func resumption(of observation: Observation, hasEnded: Bool) async throws -> CapabilityReport {
        guard let resumable = observation.resumable else {
            let support: Support = hasEnded ? .notTestable : .notAccepted
            return CapabilityReport(resumption: support, earlyData: support)
        }
        var settings = try connection.settings()
        settings.proof = rules(observation.staplingFault == nil ? .requested : .none)
        settings.resumption = .session(resumable)
        var report = CapabilityReport(resumption: .notTestable, earlyData: .notAccepted)
        if resumable.maximumEarlyDataBytes > 0 {
            (report.earlyData, report.earlyDataBytes) = (.accepted, resumable.maximumEarlyDataBytes)
        }
        do {
            report.resumption = try await connection.handshake(settings) { _, session in
                session.isResumed ? .accepted : .notAccepted
            }
        } catch let error where error is CancellationError {
            throw error
        } catch {
            // The server accepted the first connection, so this failure says nothing about resumption.
        }
        return report
    }

    private func describeCapabilities(in report: inout InspectionReport) async throws {
        var capabilities = report.capabilities ?? CapabilityReport(resumption: .notTestable, earlyData: .notTestable)
        try await CapabilityProbes(connection: connection).run(&capabilities, negotiated: report.session)
        // The server does not speak TLS, or its STARTTLS dialogue fails.
        if report.failure != nil, capabilities.versions.values.allSatisfy({ $0 == .notTestable }) { return }
        report.capabilities = capabilities
        report.problems += Assessment.problems(of: capabilities)
    }

    private func conclude(_ report: inout InspectionReport) {
        let own = Assessment.problems(of: report.certificates, days: choices.days, at: report.inspectedAt, isServer: true)
        report.problems = Assessment.merged(report.problems, own)
        report.daysLeft = report.certificates.compactMap(\.daysLeft).min()
        if report.failure == nil { report.status = Assessment.status(of: report.problems) }
    }
}
