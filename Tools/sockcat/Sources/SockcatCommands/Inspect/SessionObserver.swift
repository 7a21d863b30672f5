internal import AsyncSockets
internal import Synchronization

/// What the handshakes with a server showed. The values that were known before a failure are kept.
struct Observation: Sendable {
    var session: TLSSession?
    var address: String?
    var trust: PeerTrust?
    var resumable: TLSResumableSession?
    /// The server's request for a certificate.
    var request: TLSClientCertificateRequest?
    /// The server's decision about the client's certificate or, if no certificate was presented, about a
    /// client without a certificate. `nil` if the server requested no certificate or there was a failure.
    var verdict: ServerVerdict?
    /// Whether the client's certificate was presented.
    var presentsIdentity = false
    /// Why the stapled response was rejected, in which case it was not requested again.
    var staplingFault: TLSError?
    /// Why the server does not match its TLSA records, in which case it did not have to match them again.
    var recordsFault: TLSError?
    /// Why no handshake was completed, or why the server refused the client.
    var failure: Failure?
    /// Why the server's certificate was rejected.
    fileprivate var certificateFault: TLSError?

    var certificates: [TLSCertificate] { session?.peerCertificates ?? trust?.chain ?? [] }
}

/// Performs the first handshake with a server, and repeats it with fewer demands if the server's certificate
/// was rejected: without its TLSA records and the client's certificate, and then without a stapled response.
struct SessionObserver: Sendable {
    let connection: ServerConnection

    private var choices: InspectionChoices { connection.choices }

    /// - Throws: `CancellationError`.
    func observe() async throws -> Observation {
        guard let records = connection.records else { return try await observeChain() }
        return try await observe(matching: records)
    }

    /// Repeats the handshake without the pins or the stapled response if they are at fault, and otherwise
    /// without the records. The client's certificate is not presented again.
    private func observe(matching records: ServerRecords) async throws -> Observation {
        var (presentsIdentity, staplingFault) = (connection.identity != nil, TLSError?.none)
        while true {
            var observation = try await observe(
                staplingFault == nil ? .requested : .none, records, presentsIdentity: presentsIdentity)
            guard let fault = observation.certificateFault else {
                observation.staplingFault = staplingFault
                return observation
            }
            if fault.isOfPins, presentsIdentity {
                presentsIdentity = false
            } else if fault.isOfStapling, staplingFault == nil {
                (presentsIdentity, staplingFault) = (false, fault)
            } else {
                var last = try await observeAnyChain()
                last.recordsFault = fault
                return last
            }
        }
    }

    private func observeChain() async throws -> Observation {
        if connection.identity != nil {
            let observation = try await observe(.requested, presentsIdentity: true)
            if observation.certificateFault == nil { return observation }
        }
        return try await observeAnyChain()
    }

    private func observeAnyChain() async throws -> Observation {
        let observation = try await observe(.requested)
        // Without an identity, every chain is accepted, so only the stapled response can have been rejected,
        // or a chain that is too large, which is rejected again.
        guard let fault = observation.certificateFault else { return observation }
        var second = try await observe(.none)
        second.staplingFault = fault
        return second
    }

    /// The rules for the server's certificate. A server that receives the client's certificate must match the
    /// pins.
    func rules(
        _ stapling: TLSOCSPStapling, _ records: ServerRecords?, presentsIdentity: Bool
    ) -> TLSServerProof {
        let rules =
            choices.pins.isEmpty
            ? TLSCertificateRules() : TLSCertificateRules(pins: choices.pins, onlyReportsPins: !presentsIdentity)
        if let records { return .dane(records.rule, rules, ocspStapling: stapling) }
        return .certificates(rules, ocspStapling: stapling)
    }

    private func observe(
        _ stapling: TLSOCSPStapling, _ records: ServerRecords? = nil, presentsIdentity: Bool = false
    ) async throws -> Observation {
        let decision = TrustDecision(presentsIdentity: presentsIdentity, pins: choices.pins)
        let record = ObservationRecord()
        record.change { $0.presentsIdentity = presentsIdentity }
        do {
            try await handshake(stapling, records, decision, record)
        } catch let error where error is CancellationError {
            throw error
        } catch {
            let tls = (error as? AsyncSocketError)?.tls
            record.change { observation in
                observation.failure = Failure(error)
                observation.request = observation.request ?? tls?.clientCertificateRequest
                let isFault = tls?.fault == .certificate || tls?.code == .noUsableTLSARecord
                observation.certificateFault = isFault ? tls : nil
            }
        }
        record.change { $0.trust = decision.trust }
        return record.observation
    }

    private func handshake(
        _ stapling: TLSOCSPStapling, _ records: ServerRecords?, _ decision: TrustDecision, _ record: ObservationRecord
    ) async throws {
        let collector = SessionCollector()
        var settings = try connection.settings(records)
        settings.proof = rules(stapling, records, presentsIdentity: decision.presentsIdentity)
        settings.resumption = .store(collector)
        // No data is sent to a server that may not be trusted.
        let command = decision.presentsIdentity ? connection.target.startTLS?.harmlessCommand : nil
        let waitsForSession = choices.probes
        let connected = { @Sendable (address: SocketEndpoint?) in record.change { $0.address = address.map { "\($0)" } } }
        try await connection.handshake(settings, decision, connected: connected) { socket, session in
            record.change { ($0.session, $0.request) = (session, session.clientCertificateRequest) }
            guard let socket else {
                // DTLS 1.2: the server's decision and its session are parts of the handshake.
                let isRequested = session.clientCertificateRequest != nil
                return record.change { ($0.verdict, $0.resumable) = (isRequested ? .accepted : nil, collector.latest) }
            }
            if session.clientCertificateRequest != nil {
                let verdict = try await ServerVerdict.arrives(
                    on: socket, session, collector, command: command, hasIdentity: decision.presentsIdentity,
                    within: choices.timeout)
                record.change { $0.verdict = verdict }
            } else if waitsForSession, session.protocolVersion >= .tls13 {
                _ = await collector.session(on: socket, within: ServerVerdict.patience)
            }
            record.change { $0.resumable = collector.latest }
        }
    }
}

extension TLSError {
    /// Whether the chain contains no pinned key, although it is valid.
    fileprivate var isOfPins: Bool { code == .pinMismatch }

    /// Whether the stapled response was rejected. No other source of revocations is used.
    fileprivate var isOfStapling: Bool {
        switch verifyCode.map(Assessment.code(ofVerification:)) {
        case .stapling, .revoked: true
        default: false
        }
    }
}

/// An observation that a connection's task completes step by step.
private final class ObservationRecord: Sendable {
    private let value = Mutex(Observation())

    var observation: Observation { value.withLock { $0 } }

    func change(_ body: (inout sending Observation) -> Void) { value.withLock { body(&$0) } }
}
