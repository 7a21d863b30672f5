internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// How a connection is established: looking up, connecting, asking a proxy, or taking over a descriptor.
extension StreamConnection {
    func connect(to destination: Destination, timeout: Double) {
        clock = PhaseClock(.connect, seconds: timeout)
        record.withLock { $0.snapshot.endpoint = CopyOnWrite(destination.endpoint) }
        phase = .opening(Opening(to: destination, on: loop))
        if !waitsForClosing { beginToConnect() }
    }

    func beginToConnect() {
        waitsForClosing = false
        guard case .opening(let opening) = phase else { return }
        note("connecting", ["to": "\(opening.destination.name)"])
        let address = opening.resolve { [weak self] in self?.post(.resolved($0)) }
        if let address { follow(opening.connect(to: [address], options, reportAttempts), opening) }
    }

    func didResolve(_ answer: Resolver.Answer) {
        guard case .opening(let opening) = phase else { return }
        follow(opening.resolved(answer, options, reportAttempts), opening)
    }

    private var options: SocketOptionSet { record.withLock { $0.live.options } }

    private var reportAttempts: @Sendable (Int, LoopEvents) -> Void {
        { [weak self] in self?.post(.attempt($0, $1)) }
    }

    /// The kernel has events for an attempt.
    func react(to events: LoopEvents, ofAttempt number: Int) {
        guard case .opening(let opening) = phase else { return }
        follow(opening.handle(events, ofAttempt: number), opening)
    }

    func follow(_ steps: [Opening.Step], _ opening: Opening) {
        for step in steps {
            switch step {
            case .progressed(let progress): outlet.append(.progressed(progress))
            case .connected(let descriptor): didConnect(descriptor, opening.destination)
            case .failed(let error): close(error)
            }
        }
    }

    /// The transport is connected, and nothing has been delivered yet.
    private func didConnect(_ descriptor: SocketDescriptor, _ destination: Destination) {
        guard watch(descriptor, "connect") else { return }
        let peer = descriptor.remoteAddress
        if let peer { outlet.append(.progressed(.connected(peer))) }
        let channel = ByteChannel(descriptor, of: peer?.family)
        sendSmallWritesAtOnce(descriptor)
        needsPump = true
        if let tunnel = destination.tunnel {
            phase = .negotiating(channel, tunnel)
        } else if establish(channel), let peer = record.withLock({ $0.snapshot.remoteAddress }) {
            if let path = peer.unixPath {
                deliverConnected(.didConnectToPath(path))
            } else {
                deliverConnected(.didConnect(host: peer.host ?? "\(peer)", port: peer.port ?? 0))
            }
        }
    }

    /// Exchanges messages with the proxy as far as possible now.
    func negotiate(_ tunnel: Tunnel, over channel: ByteChannel) {
        var tunnel = tunnel
        let answer = tunnel.negotiate(over: channel, reads.preBuffer)
        phase = .negotiating(channel, tunnel)
        switch answer {
        case .incomplete: break
        case .more: askForTurn()
        case .failed(let error): close(error)
        case .established:
            guard establish(channel) else { return }
            deliverConnected(.didConnect(host: tunnel.host, port: tunnel.port))
            needsPump = true
        }
    }

    /// Answers the waiter for the connection, or delivers the event.
    private func deliverConnected(_ event: DelegateEvent) {
        if !waiters.answerConnected() { outlet.append(event) }
    }

    /// Takes over a descriptor that is connected, such as an accepted one.
    func adopt(_ descriptor: SocketDescriptor) {
        guard watch(descriptor, "accept") else { return }
        sendSmallWritesAtOnce(descriptor)
        let peer = record.withLock { $0.snapshot.remoteAddress } ?? descriptor.remoteAddress
        needsPump = establish(ByteChannel(descriptor, of: peer?.family))
    }

    /// False when the connection has ended instead.
    private func watch(_ descriptor: SocketDescriptor, _ operation: String) -> Bool {
        do throws(SystemError) {
            if let registration { try loop.watch(descriptor, for: registration) }
            return true
        } catch {
            close(AsyncSocketError(error, operation: operation))
            return false
        }
    }

    /// False when the connection has ended instead: the kernel has refused an option that was set meanwhile.
    private func establish(_ channel: ByteChannel) -> Bool {
        clock = nil
        phase = .connected(channel)
        beginObserving(channel.descriptor)
        do throws(SystemError) {
            let peer = record.withLock { $0.snapshot.remoteAddress } ?? channel.descriptor.remoteAddress
            try introduce(channel.descriptor, peer: peer)
            note("connected")
            return true
        } catch {
            close(AsyncSocketError(error, operation: "connect"))
            return false
        }
    }

    /// Sets `TCP_NODELAY`, unless the caller has set or cleared it.
    private func sendSmallWritesAtOnce(_ descriptor: SocketDescriptor) {
        if options.value(of: .noDelay) == nil { descriptor.setNoDelay() }
    }

    // MARK: - Anywhere

    /// Publishes the facts of a connected descriptor, and the descriptor itself for options.
    func introduce(_ descriptor: SocketDescriptor, peer: SocketAddress?) throws(SystemError) {
        try record.withLock { record throws(SystemError) in
            guard !record.isOver else { return }
            try record.live.adopt(descriptor)
            guard let peer else { return }
            record.snapshot.isEstablished = true
            record.snapshot.remoteAddress = peer
        }
    }

    /// The same for an accepted descriptor. It has only the options that the kernel passes on; the others are
    /// set now.
    func introduce(_ accepted: AcceptedConnection) throws(AsyncSocketError) {
        do throws(SystemError) {
            record.withLock { $0.live.lateOptions = $0.live.options.notInherited(by: accepted.descriptor) }
            try introduce(accepted.descriptor, peer: accepted.peer)
        } catch {
            throw AsyncSocketError(error, operation: "accept")
        }
    }
}
