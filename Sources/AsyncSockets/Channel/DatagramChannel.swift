internal import SocketCore

/// One descriptor of a UDP socket, and what is known of its readiness. Confined to the turn.
class DatagramChannel {
    enum Readiness {
        /// The kernel takes or has something, or has not yet said that it does not.
        case ready
        /// An event says when to go on.
        case waiting
        /// The kernel had no memory, or refused to receive.
        case exhausted(until: Deadline?)

        var isReady: Bool { if case .ready = self { true } else { false } }
        var retry: Deadline? { if case .exhausted(let deadline) = self { deadline } else { nil } }
    }

    let descriptor: DatagramDescriptor
    private let receiver: DatagramReceiver
    private let sender: DatagramSender
    @exclusivity(unchecked) private var input = Readiness.ready
    @exclusivity(unchecked) final var output = Readiness.ready
    /// An event has announced errors of datagrams that were sent.
    @exclusivity(unchecked) private var mayHaveErrors = false
    /// Why the descriptor can receive no more.
    @exclusivity(unchecked) private(set) var failure: SystemError?
    /// Why receiving is paused: the error with which the kernel refuses to receive.
    @exclusivity(unchecked) private(set) var denial: SystemError?
    @exclusivity(unchecked) private var hasNewDenial = false

    /// How many errors of earlier datagrams are skipped at a time.
    private static let refusalLimit = 32

    init(_ descriptor: DatagramDescriptor, maximumSize: Int, coalesces: Bool) {
        self.descriptor = descriptor
        receiver = DatagramReceiver(maximumSize: maximumSize, coalesces: coalesces)
        receiver.localPort = descriptor.localAddress?.port ?? 0
        sender = DatagramSender(for: descriptor)
    }

    // MARK: - The path

    /// The largest datagram that the path to the peer carries, as far as the kernel knows, without the
    /// headers of UDP and IP; nil when it does not know.
    var pathSize: Int? {
        do throws(SystemError) {
            return try descriptor.pathMTU - Self.headerSize(to: descriptor.remoteAddress.map { InternetAddress($0) })
        } catch {
            return nil
        }
    }

    /// The headers of UDP and IP.
    static func headerSize(to address: InternetAddress?) -> Int { address?.isIPv6 == true ? 48 : 28 }

    /// The size that every path of IPv6 carries (RFC 8200, section 5).
    static let safePathSize = 1280 - 48

    /// Has the kernel learn what the path carries, unless the program has said how it is to do that; returns
    /// what it knows.
    func preparePath() -> Int {
        // Without it the kernel cuts datagrams up, and the loss of a piece is the loss of all.
        do throws(SystemError) { try descriptor.set(.pathMTUDiscovery, to: .always) } catch {}
        return pathSize ?? Self.safePathSize
    }

    /// How many datagrams have come for the socket of a listener's peer, with those that it has not taken.
    var arrivalCount: Int { 0 }

    /// The ClientHello with which a listener has made the socket of a peer.
    func takeHello() -> [UInt8]? { nil }

    /// Called when the DTLS handshake is complete.
    func noteSecured() {}

    /// A datagram that has no destination goes there, and others are not known.
    var fixedPeer: InternetAddress? { nil }

    /// True for an address that it reaches.
    func reaches(_ address: InternetAddress) -> Bool {
        switch descriptor.families {
        case .ipv4: address.isIPv4
        case .ipv6: address.isIPv6
        case .both: address.isIPv4 || address.isIPv6
        }
    }

    /// The kernel has given it an address.
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

    /// It has no failure, no errors, and no time at which it tries again.
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

    /// Why receiving is paused, here or at the listener that this peer belongs to.
    var currentDenial: SystemError? { denial }

    /// Returns a new denial once, so that it is reported once.
    func takeNewDenial() -> SystemError? {
        defer { hasNewDenial = false }
        return hasNewDenial ? denial : nil
    }

    /// The errors that datagrams have met after they were sent, some at a time.
    func takeErrors() -> [DatagramError] {
        guard mayHaveErrors else { return [] }
        let (errors, isDrained) = descriptor.takeErrors()
        if isDrained { mayHaveErrors = false }
        return errors
    }

    var hasErrors: Bool { mayHaveErrors }

    // MARK: - Datagrams

    /// The next datagram, if there is one now. Valid until the next call.
    func next() -> ReceivedDatagram? {
        for _ in 0..<Self.refusalLimit {
            if let datagram = receiver.next() { return datagram }
            guard input.isReady else { return nil }
            let answer = receiver.receive(from: descriptor)
            if denial != nil { denial = nil }
            switch answer {
            case .received(let mayHaveMore):
                if !mayHaveMore { input = .waiting }
                // The kernel has given it one with the first send.
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

    /// There may be more datagrams, and no event announces them.
    var mayHaveInput: Bool { !receiver.isEmpty || input.isReady }

    var mayHaveRoom: Bool { output.isReady }

    /// Sends as many as there is room for.
    func send(_ datagrams: UnsafeBufferPointer<OutgoingDatagram>) -> DatagramSendReport {
        let report = sender.send(datagrams)
        if report.rest != .none { note(report.rest) }
        return report
    }

    /// Sends one, if there is room for it.
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

    /// Has the loop watch it for `registration`.
    func join(_ loop: EventLoop, _ registration: LoopRegistration) throws(SystemError) {
        try loop.watch(descriptor.socket, for: registration)
    }

    /// Leaves its loop, and closes.
    func leave(_ loop: EventLoop) {
        loop.unwatch(descriptor.socket)
        receiver.discard()
        descriptor.socket.close()
    }
}
