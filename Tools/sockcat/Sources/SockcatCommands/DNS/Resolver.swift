internal import CResolver
internal import Glibc
internal import Synchronization

/// Looks up records through a validating name server.
struct Resolver: Sendable {
    /// Sends a query and returns the reply. Its flag AD can be trusted.
    private let exchange: @Sendable ([UInt8]) async throws -> [UInt8]
    private let probe = ValidationProbe()

    init(_ exchange: @escaping @Sendable ([UInt8]) async throws -> [UInt8]) { self.exchange = exchange }

    /// The records of a name, and the name itself after its aliases.
    struct Answer: Sendable, Equatable {
        /// Whether DNSSEC has validated the aliases, and the records or their absence.
        let isAuthentic: Bool
        let name: DNSName
        let records: [DNSData]
    }

    private static let longestChain = 16

    /// - Throws: A failure if it is not known whether there are records. This differs from an absence of
    ///   records: an attacker can prevent a reply (RFC 7672, section 2.1.2).
    func answer(_ name: DNSName, _ type: DNSType) async throws -> Answer {
        let query = DNSQuery(identifier: .random(in: 0...UInt16.max), name: name, type: type)
        do {
            let reply = try query.reply(try await exchange(query.bytes))
            if !reply.isAuthentic { try await requireValidation() }
            return try Self.answer(to: query, in: reply)
        } catch let fault as DNSFault {
            throw Failure("the look-up of \(type) records for \"\(name)\" failed: \(fault.message)", status: .connectFailed)
        } catch var failure as Failure {
            failure.message = "the look-up of \(type) records for \"\(name)\" failed: \(failure.message)"
            throw failure
        }
    }

    /// Throws unless the name server validates DNSSEC: all records appear unsigned if it does not. The root
    /// zone is signed, so its reply must be authentic. The test is repeated until the name server passes.
    private func requireValidation() async throws {
        if probe.hasPassed { return }
        let query = DNSQuery(identifier: .random(in: 0...UInt16.max), name: .root, type: .ns)
        guard try query.reply(try await exchange(query.bytes)).isAuthentic else {
            throw Failure(
                "the name server in /etc/resolv.conf does not validate DNSSEC",
                advice: "use a validating resolver such as unbound, and test it with \"dig +adflag . SOA\"",
                status: .connectFailed)
        }
        probe.pass()
    }

    /// Follows the aliases in a reply.
    static func answer(to query: DNSQuery, in reply: DNSReply) throws(DNSFault) -> Answer {
        var name = query.name
        for _ in 0..<longestChain {
            let own = reply.records.filter { $0.owner == name }
            let matching = own.map(\.data).filter { $0.isAnswer(to: query.type) }
            if !matching.isEmpty {
                return Answer(isAuthentic: reply.isAuthentic, name: name, records: matching)
            }
            let aliases = Set(own.compactMap { if case .alias(let target) = $0.data { target } else { nil } })
            guard aliases.count <= 1 else { throw DNSFault("the name \"\(name)\" has several aliases") }
            guard let target = aliases.first else { return Answer(isAuthentic: reply.isAuthentic, name: name, records: []) }
            name = target
        }
        throw DNSFault("there are more than \(longestChain) aliases")
    }
}

/// Whether a reply has shown that the name server validates DNSSEC.
private final class ValidationProbe: Sendable {
    private let state = Atomic(false)

    var hasPassed: Bool { state.load(ordering: .relaxed) }

    func pass() { state.store(true, ordering: .relaxed) }
}

extension DNSData {
    func isAnswer(to type: DNSType) -> Bool {
        switch self {
        case .address: type == .a || type == .aaaa
        case .alias: type == .cname
        case .mailExchanger: type == .mx
        case .service: type == .srv
        case .tlsa: type == .tlsa
        case .other: false
        }
    }
}

extension Resolver {
    /// Performs look-ups with a time limit. The C library has a limit of its own for each query.
    static func within<Result: Sendable>(
        _ timeout: Duration, _ lookUp: @escaping @Sendable () async throws -> Result
    ) async throws -> Result {
        try await withThrowingTaskGroup(of: Result.self) { group in
            group.addTask { try await lookUp() }
            group.addTask {
                try await Task.sleep(for: timeout)
                throw Failure(
                    "the DNS look-up did not complete within \(timeout)", advice: "allow more time with --timeout",
                    status: .timedOut)
            }
            defer { group.cancelAll() }
            guard let result = try await group.next() else { throw CancellationError() }
            return result
        }
    }

    /// The resolver of the C library, with the name servers in /etc/resolv.conf.
    static let system = Resolver.ofCLibrary()

    private static let largestReply = 65_535

    /// - Parameters:
    ///   - port: The port of a name server on 127.0.0.1 to use instead of those in /etc/resolv.conf.
    ///   - seconds: The approximate time limit for a query.
    static func ofCLibrary(port: UInt16 = 0, seconds: Int32 = 10) -> Resolver {
        Resolver { query in
            let pending = PendingReply()
            return try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { continuation in
                    pending.wait(continuation)
                    do {
                        try DetachedThread.start { pending.finish(send(query, port, seconds)) }
                    } catch {
                        pending.finish(.failure(error))
                    }
                }
            } onCancel: {
                pending.finish(.failure(CancellationError()))
            }
        }
    }

    private static func send(_ query: [UInt8], _ port: UInt16, _ seconds: Int32) -> Result<[UInt8], any Error> {
        var reply = [UInt8](repeating: 0, count: largestReply)
        let count = CResolver_send(query, Int32(query.count), &reply, Int32(reply.count), seconds, port)
        let error = errno
        guard count < 0 else { return .success(Array(reply.prefix(Int(count)))) }
        return .failure(failure(count, error))
    }

    private static func failure(_ result: Int32, _ error: Int32) -> Failure {
        switch result {
        case Int32(CResolver_untrusted):
            Failure(
                "the name servers in /etc/resolv.conf are not on this machine, so an attacker could forge their replies",
                advice:
                    "run a validating resolver such as unbound on 127.0.0.1, or set \"options trust-ad\" if the path is secure",
                status: .connectFailed)
        case Int32(CResolver_no_configuration):
            Failure("the resolver of the C library cannot be configured", status: .connectFailed)
        default:
            // The C library reports a server that replies with SERVFAIL like a server that does not reply.
            Failure(
                "no name server in /etc/resolv.conf gave a valid reply (\(ErrorText.of(error)))",
                advice:
                    "check that the resolver is running. If other names work, the DNSSEC signatures of this one are not valid",
                status: .connectFailed)
        }
    }
}

/// A reply that another thread receives. A cancelled task returns before that thread does.
private final class PendingReply: Sendable {
    private enum State {
        case idle
        case waiting(CheckedContinuation<[UInt8], any Error>)
        case finished(Result<[UInt8], any Error>)
        case delivered
    }

    private let state = Mutex(State.idle)

    func wait(_ continuation: CheckedContinuation<[UInt8], any Error>) {
        let early = state.withLock { state -> Result<[UInt8], any Error>? in
            if case .finished(let result) = state {
                state = .delivered
                return result
            }
            state = .waiting(continuation)
            return nil
        }
        if let early { continuation.resume(with: early) }
    }

    /// Only the first result counts.
    func finish(_ result: Result<[UInt8], any Error>) {
        let continuation = state.withLock { state -> CheckedContinuation<[UInt8], any Error>? in
            switch state {
            case .idle: state = .finished(result)
            case .waiting(let continuation):
                state = .delivered
                return continuation
            case .finished, .delivered: break
            }
            return nil
        }
        continuation?.resume(with: result)
    }
}
