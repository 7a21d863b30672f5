internal import FoundationEssentials
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// A UDP socket in the log, and for its observer. Confined to the turn.
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

    /// Logs what happened, at the level `debug`, and never what was sent or received.
    func note(_ message: String, _ details: @autoclosure () -> [String: String], peer: SocketAddress?) {
        let logger = logger
        guard logger.logLevel <= .debug else { return }
        log.write(message, details(), peer: peer, logger)
    }

    /// Logs that a datagram did not arrive. Others decide how often that happens: there is at most one line a
    /// second, and it has the number of those that were omitted before it.
    func noteFailure(_ error: AsyncSocketError, peer: SocketAddress?) {
        guard logger.logLevel <= .debug, let omitted = lossLog.take() else { return }
        var details = ["error": "\(error)"]
        if omitted > 0 { details["omitted"] = "\(omitted)" }
        note("a datagram did not arrive", details, peer: peer)
    }

    /// The socket closes: logs how many lines were omitted since the last one.
    func noteOmittedFailures(peer: SocketAddress?) {
        guard lossLog.omitted > 0 else { return }
        note("datagrams did not arrive", ["count": "\(lossLog.omitted)"], peer: peer)
    }

    /// Logs the kernel's drops now and then, and at the end.
    func noteDrops(atEnd: Bool, peer: @autoclosure () -> SocketAddress?, _ count: () -> Int) {
        guard let count = dropLog.take(atEnd: atEnd, count) else { return }
        logger.warning(
            "the kernel has dropped datagrams: the receive buffer was full",
            metadata: log.name(peer: peer()).merging(["count": "\(count)"]) { $1 })
    }

    /// Logs that the kernel refused to receive.
    func noteDenial(_ error: SystemError, peer: SocketAddress?) {
        logger.warning(
            "receiving was refused and will be retried", metadata: log.name(peer: peer).merging(["reason": "\(error)"]) { $1 })
    }

    /// Logs that the socket closes because receiving has failed permanently. A task that is sending would not
    /// see this error otherwise.
    func noteEndOfReceiving(_ error: SystemError, peer: SocketAddress?) {
        logger.error(
            "receiving has failed", metadata: log.name(peer: peer).merging(["error": "\(error)"]) { $1 })
    }

    // MARK: - The observer

    /// The socket is open: it begins for its observer, once.
    func begin(peer: SocketAddress?) {
        guard observation == nil, let observer = configuration.value.observer else { return }
        observation = ConnectionObservation(ObservedConnection(number: log.number, role: log.role, peer: peer), by: observer)
    }

    func failedToConnect(_ error: any Error) {
        ConnectionObservation.deliverFailure(error as? AsyncSocketError, to: configuration.value.observer)
    }

    /// The observation of the socket, for its handshake.
    var handshake: ConnectionObservation? { observation }

    /// - Parameter role: The role in a handshake that was refused before it began.
    func end(_ error: AsyncSocketError?, refusing role: TLSRole?, _ carried: CarriedBytes) {
        observation.take()?.end(error, refusing: role, carried)
    }
}

/// Datagrams that did not arrive, in the log: a line for a second at most.
private struct LossLog {
    private(set) var omitted = 0
    private var next = Deadline.distantPast

    /// How many lines were omitted before this one; nil: it is omitted too.
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

/// The kernel's drops in the log: it is asked once a second at most, and at the end, so that a flood fills
/// neither the log nor the time.
private struct DropLog {
    private var written = 0
    private var next = Deadline.distantPast

    /// The count, if it is to be written now.
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
