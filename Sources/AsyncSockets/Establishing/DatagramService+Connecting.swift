internal import Glibc
internal import SocketBuffers
internal import SocketCore

extension DatagramService {
    func connect(to target: DatagramTarget, _ claim: Int, _ seconds: Double, _ waiter: (any OperationWaiter<Void>)?) {
        guard !isClosing else { return answerConnect(waiter, .failure(AsyncSocketError.closing(.connect))) }
        // Another thread may already have called `disconnect`, although its message has not arrived yet.
        dissolveAssociation()
        // Existing descriptors are attached first, because a failed attempt closes only descriptors that it
        // opened.
        attach()
        guard !isOver else { return serveAfterEnd(.connect(target, claim, timeout: seconds, waiter: waiter)) }
        attempt = DatagramAttempt(
            target: target, claim: claim, deadline: Deadline(after: seconds), seconds: seconds, waiter: waiter,
            opens: channels.isEmpty)
        peer = .connecting
        if let query = target.query {
            output.lookups.begin(query, asking: configuration.value.resolver) { [post] in post(.resolved(query, $0)) }
        } else {
            goOnConnecting()
        }
    }

    func goOnConnecting() {
        switch attempt?.target {
        case nil, .peer: break
        case .address(let address, _):
            let address = address.socketAddress
            finishConnecting(tryAddresses([address], "\(address)"))
        case .host(let query):
            switch output.lookups.answer(to: query) {
            case nil: break
            case .failure(let error): finishConnecting(.failure(AsyncSocketError(error)))
            case .success(let addresses):
                finishConnecting(tryAddresses(configuration.value.order(addresses), "\(query.host):\(query.port)"))
            }
        }
    }

    /// Connects to the first address for which the kernel has a route.
    private func tryAddresses(_ addresses: [SocketEndpoint], _ destination: String) -> Result<SocketEndpoint, any Error> {
        var failures: [(address: SocketEndpoint, error: SystemError)] = []
        for address in addresses {
            do throws(SystemError) {
                return .success(try connect(to: address))
            } catch {
                failures.append((address, error))
            }
        }
        return .failure(AsyncSocketError(failedAttempts: failures, destination: destination))
    }

    private func connect(to address: SocketEndpoint) throws(SystemError) -> SocketEndpoint {
        let configuration = configuration.value
        let target = InternetAddress(address)
        var channel = channels.first { $0.reaches(target) }
        if channel == nil, attempt?.opens == true, configuration.enabledFamilies.allows(address.family) {
            try record.withLock { record throws(SystemError) in
                try record.connect(to: address, configuration.reception)
            }
            attach()
            channel = channels.first { $0.reaches(target) }
        } else {
            try channel?.descriptor.connect(to: address)
        }
        guard let channel else {
            throw SystemError(
                "connect", errno: EAFNOSUPPORT,
                detail: "\(address): the socket does not use \(AsyncSocketError.families(of: [address]))")
        }
        closeDescriptors(except: channel)
        channel.noteAddress()
        return channel.descriptor.remoteAddress ?? address
    }

    func finishConnecting(_ result: Result<SocketEndpoint, any Error>) {
        guard let attempt = attempt.take() else { return }
        output.lookups.end(attempt.target.query)
        switch result {
        case .success(let address):
            (peer, claim) = (.connected(InternetAddress(address)), attempt.claim)
            record.withLock { $0.peer = address }
            note("connected", ["to": "\(address)"])
            journal.begin(peer: address)
            if attempt.waiter == nil { outbox.append(.didConnect(address)) }
            attempt.waiter?.complete(.success(()))
        case .failure(let error):
            peer = .none
            // Data that should be encrypted must never be sent in plaintext, so the socket is closed.
            if upgrade != nil { return failConnecting(attempt, error) }
            if attempt.opens { input.refuse(.notOpen(.receive)) }
            record.withLock { $0.endClaim(attempt.claim) }
            note("connecting failed", ["error": "\(error)"])
            journal.failedToConnect(error)
            answerConnect(attempt.waiter, .failure(error))
        }
    }

    private func failConnecting(_ attempt: DatagramAttempt, _ error: any Error) {
        journal.failedToConnect(error)
        answerConnect(attempt.waiter, .failure(error))
        close(error as? AsyncSocketError)
    }

    private func answerConnect(_ waiter: (any OperationWaiter<Void>)?, _ result: Result<Void, any Error>) {
        if let waiter { return waiter.complete(result) }
        if case .failure(let error) = result { outbox.append(.didNotConnect(error as? AsyncSocketError ?? endError)) }
    }

    func dissolveAssociation() {
        if attempt != nil { return finishConnecting(.failure(AsyncSocketError.closed)) }
        guard case .connected(let address) = peer else { return }
        if upgrade != nil || channels.first?.fixedPeer != nil { return close(nil) }
        for channel in channels where !channel.onlyReceives {
            do throws(SystemError) {
                try channel.descriptor.disconnect()
            } catch {
                note("the socket stays connected because disconnecting it failed", ["error": "\(error)"])
                return record.withLock { $0.keepClaim(claim) }
            }
        }
        // Datagrams that are already queued are still sent to this peer.
        output.aim(at: address)
        peer = .none
        record.withLock { $0.endClaim(claim) }
    }
}
