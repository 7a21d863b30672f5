internal import SocketCore

/// One descriptor of a UDP socket and its known readiness. Confined to the turn.
class DatagramChannel {
    enum Readiness {
        /// The kernel is ready to send or receive, or has not yet reported otherwise.
        case ready
        /// The next event signals readiness.
        case waiting
        /// The kernel was out of memory, or receiving failed.
        case exhausted(until: Deadline?)

        var isReady: Bool { if case .ready = self { true } else { false } }
        var retry: Deadline? { if case .exhausted(let deadline) = self { deadline } else { nil } }
    }

    let descriptor: DatagramDescriptor
    /// Whether the descriptor belongs to `GroupReceivers`.
    let onlyReceives: Bool
    private let receiver: DatagramReceiver
    private let sender: DatagramSender
    @exclusivity(unchecked) private var input = Readiness.ready
    @exclusivity(unchecked) final var output = Readiness.ready
    /// Whether an event has signaled errors for sent datagrams.
    @exclusivity(unchecked) private var mayHaveErrors = false
    /// Why the descriptor can no longer receive.
    @exclusivity(unchecked) private(set) var failure: SystemError?
    /// The error with which receiving currently fails. Receiving is paused while it is set.
    @exclusivity(unchecked) private(set) var denial: SystemError?
    @exclusivity(unchecked) private var hasNewDenial = false

    /// The maximum number of errors from earlier datagrams to skip at a time.
    private static let refusalLimit = 32

    init(_ descriptor: DatagramDescriptor, maximumSize: Int, coalesces: Bool, onlyReceives: Bool = false) {
        self.descriptor = descriptor
        self.onlyReceives = onlyReceives
        receiver = DatagramReceiver(maximumSize: maximumSize, coalesces: coalesces)
        receiver.localPort = descriptor.localAddress?.port ?? 0
        sender = DatagramSender(for: descriptor)
    }

    // MARK: - Path MTU

    /// The largest datagram that the path to the peer can carry, without the UDP and IP headers. `nil` if
    /// the kernel does not know it.
    var pathSize: Int? {
        do throws(SystemError) {
            return try descriptor.pathMTU - Self.headerSize(to: descriptor.remoteAddress.map { InternetAddress($0) })
        } catch {
            return nil
        }
    }

    static func headerSize(to address: InternetAddress?) -> Int { address?.isIPv6 == true ? 48 : 28 }

    /// The size that every IPv6 path can carry (RFC 8200, section 5).
    static let safePathSize = 1280 - 48

    /// Enables path MTU discovery, unless the program has configured it. Returns the known path size or a
    /// safe default.
    func preparePath() -> Int {
        // Otherwise the kernel fragments datagrams, and the loss of one fragment loses the whole datagram.
        do throws(SystemError) { try descriptor.set(.pathMTUDiscovery, to: .always) } catch {}
        return pathSize ?? Self.safePathSize
    }

    /// The number of datagrams received by the socket of a listener's peer, including unread and dropped
    /// datagrams.
    var arrivalCount: Int { 0 }

    /// Returns the ClientHello in response to which a listener created this peer's socket, or `nil`.
    func takeHello() -> [UInt8]? { nil }

    /// Called when the DTLS handshake is complete.
    func noteSecured() {}

    /// The only peer of the socket, if it is fixed. Datagrams without a destination are sent to this
    /// address.
    var fixedPeer: InternetAddress? { nil }

    func reaches(_ address: InternetAddress) -> Bool {
        if onlyReceives { return false }
        return switch descriptor.families {
        case .ipv4: address.isIPv4
        case .ipv6: address.isIPv6
        case .both: address.isIPv4 || address.isIPv6
        }
    }

    /// Records the local port after the kernel has assigned an address.
    func noteAddress() {
        receiver.localPort = descriptor.localAddress?.port ?? 0
    }

    // MARK: - Events

    func note(_ events: LoopEvents) {
        // New datagrams do not shorten the pause after a denial.
        if events.contains(.readable), denial == nil { input = .ready }
        if events.contains(.writable) { output = .ready }
        if events.contains(.hangup) { mayHaveErrors = true }
    }

    /// Whether the descriptor has no failure, no pending errors, and no retry scheduled.
    final var isSteady: Bool {
        if case .exhausted = input { return false }
        if case .exhausted = output { return false }
        return failure == nil && !hasErrors
    }

    var retry: Deadline? { .earlier(input.retry, output.retry) }

    func retryIfDue(at now: Deadline) {
        if let retry = input.retry, retry <= now { input = .ready }
        if let retry = output.retry, retry <= now { output = .ready }
    }

    /// Why receiving is paused, on this descriptor or, for a listener's peer, on the listener's descriptor.
    var currentDenial: SystemError? { denial }

    /// Returns a new denial once, so that it is reported once.
    func takeNewDenial() -> SystemError? {
        defer { hasNewDenial = false }
        return hasNewDenial ? denial : nil
    }

    /// Returns errors for sent datagrams, a limited number at a time.
    func takeErrors() -> [DatagramError] {
        guard mayHaveErrors else { return [] }
        let (errors, isDrained) = descriptor.takeErrors()
        if isDrained { mayHaveErrors = false }
        return errors
    }

    var hasErrors: Bool { mayHaveErrors }

    // MARK: - Datagrams

    /// Returns the next datagram, if one is available. It is valid until the next call.
    func next() -> ReceivedDatagram? {
        for _ in 0..<Self.refusalLimit {
            if let datagram = receiver.next() { return datagram }
            guard input.isReady else { return nil }
            let answer = receiver.receive(from: descriptor)
            if denial != nil { denial = nil }
            switch answer {
            case .received(let mayHaveMore):
                if !mayHaveMore { input = .waiting }
                // The kernel assigns an address with the first send.
                if receiver.localPort == 0 { noteAddress() }
            case .wouldBlock: input = .waiting
            case .refused: mayHaveErrors = true
            case .exhausted: input = .exhausted(until: Deadline(after: SocketDescriptor.shortageSeconds))
            case .denied(let error, let pause, let isFirst):
                (denial, hasNewDenial) = (error, isFirst)
                input = .exhausted(until: Deadline(after: pause))
            case .failed(let error):
                failure = error
                input = .waiting
            }
        }
        return nil
    }

    /// Whether there may be more datagrams that no event will announce.
    var mayHaveInput: Bool { !receiver.isEmpty || input.isReady }

    var mayHaveRoom: Bool { output.isReady }

    /// Sends as many datagrams as the kernel has room for.
    func send(_ datagrams: UnsafeBufferPointer<OutgoingDatagram>) -> DatagramSendReport {
        let report = sender.send(datagrams)
        if report.rest != .none { note(report.rest) }
        return report
    }

    func send(_ datagram: OutgoingDatagram) -> DatagramSendReport {
        let report = sender.send(datagram)
        if report.rest != .none { note(report.rest) }
        return report
    }

    private func note(_ rest: DatagramSendReport.Rest) {
        switch rest {
        case .none: break
        case .wouldBlock: output = .waiting
        case .exhausted: output = .exhausted(until: Deadline(after: SocketDescriptor.shortageSeconds))
        }
    }

    func join(_ loop: SocketEventLoop, _ registration: LoopRegistration) throws(SystemError) {
        try loop.watch(descriptor.socket, for: registration)
    }

    func leave(_ loop: SocketEventLoop) {
        loop.unwatch(descriptor.socket)
        receiver.discard()
        descriptor.socket.close()
    }
}
