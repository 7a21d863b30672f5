internal import SocketBuffers
internal import SocketCore

/// How a connection comes to stand: resolving, connecting, or taking over a descriptor.
extension StreamConnection {
    func connect(to destination: ConnectionPhase.Destination, timeout: Double) {
        clock = PhaseClock(.connect, seconds: timeout)
        phase = .resolving(destination)
        Resolver.resolve(destination.host, port: destination.port) { [weak self] result in
            self?.post(.resolved(result))
        }
    }

    func didResolve(_ result: Result<[SocketAddress], ResolveError>) {
        guard case .resolving(let destination) = phase else { return }
        switch result {
        case .success(let addresses):
            report(.progressed(.resolved(addresses)))
            tryNext(ConnectAttempts(addresses), destination)
        case .failure(let error):
            close(AsyncSocketError(error))
        }
    }

    private func tryNext(_ attempts: ConnectAttempts, _ destination: ConnectionPhase.Destination) {
        var attempts = attempts
        while let address = attempts.next() {
            report(.progressed(.trying(address)))
            do throws(SystemError) {
                if try beginConnecting(to: address, attempts, destination) { return }
            } catch {
                noteFailure(of: address, error, &attempts)
            }
        }
        close(AsyncSocketError(failedAttempts: attempts.failures, host: destination.host))
    }

    /// True when the attempt is under way, or already successful.
    private func beginConnecting(
        to address: SocketAddress, _ attempts: ConnectAttempts, _ destination: ConnectionPhase.Destination
    ) throws(SystemError) -> Bool {
        let descriptor = try SocketDescriptor(streamOf: address.family, options: facts.withLock { $0.options })
        switch descriptor.connect(to: address) {
        case .connected:
            try watch(descriptor)
            didConnect(descriptor, destination)
        case .inProgress:
            phase = .connecting(descriptor, to: address, attempts, destination)
            // Watched only now: a socket that has not begun to connect reports a hang-up.
            try watch(descriptor)
        case .failed(let error):
            throw error
        }
        return true
    }

    private func watch(_ descriptor: SocketDescriptor) throws(SystemError) {
        if let registration { try loop.watch(descriptor, for: registration) }
    }

    private func noteFailure(of address: SocketAddress, _ error: SystemError, _ attempts: inout ConnectAttempts) {
        attempts.recordFailure(of: address, error)
        report(.progressed(.failed(address, AsyncSocketError(error, operation: "connect"))))
    }

    /// The kernel has something to say about the attempt.
    func finishConnecting() {
        guard case .connecting(let descriptor, let address, var attempts, let destination) = phase else { return }
        if let error = descriptor.takeError(of: "connect") {
            loop.unwatch(descriptor)
            descriptor.close()
            phase = .resolving(destination)
            noteFailure(of: address, error, &attempts)
            tryNext(attempts, destination)
        } else if descriptor.remoteAddress != nil {
            didConnect(descriptor, destination)
        }
    }

    private func didConnect(_ descriptor: SocketDescriptor, _ destination: ConnectionPhase.Destination) {
        do throws(SystemError) {
            try stand(descriptor)
        } catch {
            return close(AsyncSocketError(error, operation: "connect"))
        }
        let address = descriptor.remoteAddress
        if let address { report(.progressed(.connected(address))) }
        report(.didConnect(host: address?.host ?? destination.host, port: address?.port ?? destination.port))
        pump()
    }

    /// Takes over a descriptor that is connected, such as an accepted one.
    func adopt(_ descriptor: SocketDescriptor) {
        do throws(SystemError) {
            try watch(descriptor)
            try stand(descriptor)
        } catch {
            return close(AsyncSocketError(error, operation: "accept"))
        }
        pump()
    }

    private func stand(_ descriptor: SocketDescriptor) throws(SystemError) {
        clock = nil
        phase = .connected(descriptor)
        reads.mayHaveBytes = true
        writes.canAcceptBytes = true
        let (known, noDelay) = facts.withLock { ($0.remoteAddress, $0.options.value(of: .noDelay)) }
        if noDelay == nil { descriptor.setNoDelay() }
        try introduce(descriptor, peer: known ?? descriptor.remoteAddress)
    }

    /// Anywhere: makes the facts of a connected descriptor known, and itself for options to be set on.
    func introduce(_ descriptor: SocketDescriptor, peer: SocketAddress?) throws(SystemError) {
        let local = descriptor.localAddress
        try facts.withLock { facts throws(SystemError) in
            guard !facts.isOver else { return }
            try facts.lateOptions.apply(toConnected: descriptor)
            facts.lateOptions = SocketOptionSet()
            facts.descriptor = descriptor
            guard let peer else { return }
            facts.isConnected = true
            facts.localAddress = local
            facts.remoteAddress = peer
        }
    }
}
