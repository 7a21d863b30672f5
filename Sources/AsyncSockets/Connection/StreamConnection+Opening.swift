internal import SocketBuffers
internal import SocketCore

/// How a connection comes to stand: resolving, connecting, or taking over a descriptor.
///
/// Whatever answers late finds this connection closed, since the socket's next one is another object, or
/// finds its attempt gone from the connector.
extension StreamConnection {
    func connect(to destination: Destination, timeout: Double) {
        clock = PhaseClock(.connect, seconds: timeout)
        phase = .waiting(destination)
        if !waitsForClosing { beginToConnect() }
    }

    func beginToConnect() {
        waitsForClosing = false
        guard case .waiting(let destination) = phase else { return }
        log("connecting", ["to": "\(destination.name)"])
        switch destination.target {
        case .host(let host, let port):
            let query = HostQuery(host: host, port: port, families: destination.policy.families)
            let lookup = destination.resolver.resolve(query) { [weak self] in self?.post(.resolved($0)) }
            phase = .resolving(destination, lookup)
        case .address(let address):
            tryAddresses([address], destination)
        }
    }

    func didResolve(_ answer: Resolver.Answer) {
        guard case .resolving(let destination, _) = phase else { return }
        switch answer {
        case .success(let addresses): tryAddresses(addresses, destination)
        case .failure(let error): close(AsyncSocketError(error))
        }
    }

    private func tryAddresses(_ addresses: [SocketAddress], _ destination: Destination) {
        do throws(NoRoute) {
            let routes = try destination.policy.routes(to: addresses)
            if case .host = destination.target { report(.progressed(.resolved(routes.map(\.destination)))) }
            let connector = Connector(
                routes: routes, delay: destination.policy.attemptDelay, options: facts.withLock { $0.options }, loop: loop
            ) { [weak self] in
                self?.post(.attempt($0, $1))
            }
            phase = .connecting(connector, destination)
            follow(connector.begin(), destination)
        } catch {
            close(AsyncSocketError(error, destination: destination.name))
        }
    }

    /// The kernel has something to say about an attempt.
    func react(to events: LoopEvents, ofAttempt number: Int) {
        guard case .connecting(let connector, let destination) = phase else { return }
        follow(connector.handle(events, of: number), destination)
    }

    /// An attempt has had its time to itself.
    func expireAttempts(at now: Deadline) {
        guard case .connecting(let connector, let destination) = phase else { return }
        follow(connector.expire(at: now), destination)
    }

    private func follow(_ steps: [Connector.Step], _ destination: Destination) {
        for step in steps {
            switch step {
            case .trying(let address):
                report(.progressed(.trying(address)))
            case .failed(let address, let error):
                report(.progressed(.failed(address, AsyncSocketError(error, operation: "connect"))))
            case .connected(let descriptor):
                didConnect(descriptor, destination)
            case .exhausted(let failures):
                close(AsyncSocketError(failedAttempts: failures, destination: destination.name))
            }
        }
    }

    /// The transport stands, and no one has been told yet.
    private func didConnect(_ descriptor: SocketDescriptor, _ destination: Destination) {
        do throws(SystemError) {
            try watch(descriptor)
        } catch {
            return close(AsyncSocketError(error, operation: "connect"))
        }
        if let address = descriptor.remoteAddress { report(.progressed(.connected(address))) }
        if let tunnel = destination.tunnel { return negotiate(tunnel, over: descriptor) }
        didStand(descriptor)
    }

    /// Tells the delegate, and serves what has been queued.
    private func didStand(_ descriptor: SocketDescriptor) {
        guard stand(descriptor) else { return }
        if let address = facts.withLock({ $0.remoteAddress }) {
            if let path = address.unixPath {
                report(.didConnectToPath(path))
            } else {
                report(.didConnect(host: address.host ?? "\(address)", port: address.port ?? 0))
            }
        }
        needsPump = true
    }

    /// Takes over a descriptor that is connected, such as an accepted one.
    func adopt(_ descriptor: SocketDescriptor) {
        do throws(SystemError) {
            try watch(descriptor)
        } catch {
            return close(AsyncSocketError(error, operation: "accept"))
        }
        needsPump = stand(descriptor)
    }

    private func watch(_ descriptor: SocketDescriptor) throws(SystemError) {
        if let registration { try loop.watch(descriptor, for: registration) }
    }

    /// False when it has ended instead: the kernel has refused an option that was set meanwhile.
    func stand(_ descriptor: SocketDescriptor) -> Bool {
        clock = nil
        phase = .connected(descriptor)
        reads.mayHaveBytes = true
        writes.canAcceptBytes = true
        sendSmallWritesAtOnce(descriptor)
        do throws(SystemError) {
            let peer = facts.withLock { $0.remoteAddress } ?? descriptor.remoteAddress
            try introduce(descriptor, peer: peer)
            if peer?.family == .unix { reads.trustsShortReads = false }
            log("connected")
            return true
        } catch {
            close(AsyncSocketError(error, operation: "connect"))
            return false
        }
    }

    /// `TCP_NODELAY`, unless the user has said something about it.
    func sendSmallWritesAtOnce(_ descriptor: SocketDescriptor) {
        if facts.withLock({ $0.options.value(of: .noDelay) }) == nil { descriptor.setNoDelay() }
    }

    /// Anywhere: makes the facts of a connected descriptor known, and itself for options to be set on.
    func introduce(_ descriptor: SocketDescriptor, peer: SocketAddress?) throws(SystemError) {
        try facts.withLock { facts throws(SystemError) in
            guard !facts.isOver else { return }
            try facts.lateOptions.apply(toConnected: descriptor)
            facts.lateOptions = SocketOptionSet()
            facts.descriptor = descriptor
            guard let peer else { return }
            facts.isConnected = true
            facts.remoteAddress = peer
        }
    }
}
