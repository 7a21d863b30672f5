internal import FoundationEssentials
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// Logs the events of a UDP socket and notifies its observer. Confined to the turn.
final class DatagramJournal {
    private let log: ConnectionLog
    @exclusivity(unchecked) private var dropLog = DropLog()
    private var lossLog = LossLog()
    @exclusivity(unchecked) private var observation: ConnectionObservation?
    @exclusivity(unchecked) var configuration = DatagramConfiguration.initial

    init(_ log: ConnectionLog) {
        self.log = log
    }

    private var logger: Logger { configuration.value.logger ?? socketLog.withLock { $0 } }

    /// Logs an event at level `debug`. Payloads are never logged.
    func note(_ message: String, _ details: @autoclosure () -> [String: String], peer: SocketEndpoint?) {
        let logger = logger
        guard logger.logLevel <= .debug else { return }
        log.write(message, details(), peer: peer, logger)
    }

    /// Logs that a datagram was not delivered. Other hosts control how often this happens, so at most one
    /// line per second is logged. It contains the number of lines omitted before it.
    func noteFailure(_ error: AsyncSocketError, peer: SocketEndpoint?) {
        guard logger.logLevel <= .debug, let omitted = lossLog.take() else { return }
        var details = ["error": "\(error)"]
        if omitted > 0 { details["omitted"] = "\(omitted)" }
        note("a datagram was not delivered", details, peer: peer)
    }

    /// Logs the number of lines omitted since the last line. Called when the socket closes.
    func noteOmittedFailures(peer: SocketEndpoint?) {
        guard lossLog.omitted > 0 else { return }
        note("datagrams were not delivered", ["count": "\(lossLog.omitted)"], peer: peer)
    }

    /// Logs how many datagrams the kernel has dropped, at most once per second, and when the socket closes.
    func noteDrops(atEnd: Bool, peer: @autoclosure () -> SocketEndpoint?, _ count: () -> Int) {
        guard let count = dropLog.take(atEnd: atEnd, count) else { return }
        logger.warning(
            "the kernel dropped datagrams because the receive buffer was full",
            metadata: log.name(peer: peer()).merging(["count": "\(count)"]) { $1 })
    }

    func noteDenial(_ error: SystemError, peer: SocketEndpoint?) {
        logger.warning(
            "receiving failed and will be retried", metadata: log.name(peer: peer).merging(["reason": "\(error)"]) { $1 })
    }

    /// Logs that the socket closes because receiving has failed permanently. A task that is sending would not
    /// see this error otherwise.
    func noteEndOfReceiving(_ error: SystemError, peer: SocketEndpoint?) {
        logger.error(
            "receiving failed permanently", metadata: log.name(peer: peer).merging(["error": "\(error)"]) { $1 })
    }

    // MARK: - Observer

    /// Starts the observation of the socket, once. Called when the socket is open.
    func begin(peer: SocketEndpoint?) {
        guard observation == nil, let observer = configuration.value.observer else { return }
        observation = ConnectionObservation(ObservedConnection(number: log.number, role: log.role, peer: peer), by: observer)
    }

    func failedToConnect(_ error: any Error) {
        ConnectionObservation.deliverFailure(error as? AsyncSocketError, to: configuration.value.observer)
    }

    var handshake: ConnectionObservation? { observation }

    /// - Parameter role: The TLS role if a handshake was rejected before it started, and otherwise `nil`.
    func end(_ error: AsyncSocketError?, refusing role: TLSRole?, _ carried: CarriedBytes) {
        observation.take()?.end(error, refusing: role, carried)
    }
}

/// Limits the log lines about undelivered datagrams to one per second.
private struct LossLog {
    private(set) var omitted = 0
    private var next = Deadline.distantPast

    /// Returns the number of lines omitted before this line, or `nil` if this line is omitted too.
    mutating func take() -> Int? {
        let now = Deadline.now
        guard next <= now else {
            omitted += 1
            return nil
        }
        next = Deadline(after: 1, from: now) ?? now
        defer { omitted = 0 }
        return omitted
    }
}

/// Queries and logs the kernel's drop count at most once per second, and once when the socket closes, so that
/// a flood of datagrams can neither fill the log nor keep a CPU busy.
private struct DropLog {
    private var written = 0
    private var next = Deadline.distantPast

    mutating func take(atEnd: Bool, _ count: () -> Int) -> Int? {
        let now = Deadline.now
        guard atEnd || next <= now else { return nil }
        next = Deadline(after: 1, from: now) ?? now
        let count = count()
        guard count > written else { return nil }
        written = count
        return count
    }
}
