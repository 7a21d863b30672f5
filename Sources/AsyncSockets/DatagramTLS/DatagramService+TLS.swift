internal import SocketBuffers
internal import SocketCore

/// DTLS on a UDP socket, and the sockets of a listener's peers.
extension DatagramService {
    func serveTLS(_ message: DatagramMessage) {
        switch message {
        case .unreachable(let error): report(error, about: peer.socketAddress)
        case .startTLS(let request): startTLS(request)
        case .upgrading(let news): upgrade?.receive(news)
        case .replaced: close(.replaced, isReplaced: true)
        case .opened, .events, .connect, .dissolveAssociation, .resolved, .send, .refuse, .judgedSend, .judgedReceive, .receive,
            .setReceiveMode, .roomIsBack, .setSendFilter, .setReceiveFilter, .configure, .changeDelegateQueue, .awaitEnd,
            .cancel, .closeAfterSending, .close, .perform, .retire, .reportFailures, .exchanging:
            break
        }
    }

    func report(_ error: AsyncSocketError, about address: SocketEndpoint?) {
        // Handshake messages are retransmitted in datagrams that fit the path.
        if error.errno == SystemError.tooLarge {
            upgrade?.layer?.measurePath()
        } else {
            upgrade?.noteFailure(error, isFatal: configuration.value.failsHandshakeOnDeliveryFailure)
        }
        input.report(error, about: address)
    }

    private func startTLS(_ request: TLSRequest) {
        guard !isClosing, upgrade == nil else {
            request.waiter?.complete(.failure(AsyncSocketError.closing(.startDTLS)))
            return
        }
        let around = DatagramUpgrade.Surroundings(
            outbox: outbox, record: record, counts: counts, journal: journal, post: post)
        upgrade = DatagramUpgrade(request, around)
        if input.hasReceivers { return close(.receiveIsWaiting) }
        input.appendStartTLS()
        output.appendStartTLS()
    }

    /// Continues the upgrade. If this returns an error, the socket is closed with that error.
    func goOnWithTLS() -> AsyncSocketError? {
        guard let upgrade else { return nil }
        if upgrade.isQuiet {
            upgrade.noteDrops()
            return nil
        }
        guard let address = peer.address, let channel = channels.first else { return nil }
        return upgrade.advance(channel, address, configuration.value, input, output)
    }

    /// The amount of data sent and received, or `nil` during an upgrade to DTLS.
    var progress: CarriedBytes? {
        if let upgrade, !upgrade.isSecure { return nil }
        // A peer with datagrams that the program has not taken yet is not idle. With DTLS, only authentic
        // datagrams count.
        let arrivalCount = upgrade == nil ? channels.first?.arrivalCount ?? 0 : 0
        return CarriedBytes(
            received: input.byteCount + input.datagramCount + arrivalCount, sent: output.byteCount + output.datagramCount)
    }

    /// Sets up the socket of a listener's peer. Called before the first message.
    func serve(_ channel: PeerChannel, to key: PeerKey) {
        channels = [channel]
        sharesDescriptor = true
        peer = .connected(key.peer)
        let address = key.peer.socketAddress
        claim = record.withLock { record in
            record.share(key.local?.socketAddress ?? channel.descriptor.localAddress, with: address)
            return record.adoptedClaim
        }
        journal.begin(peer: address)
    }
}

extension AsyncSocketError {
    fileprivate static var replaced: AsyncSocketError {
        AsyncSocketError(
            .closedByPeer, fault: .peer, operation: .receive, message: "the peer started a new connection from the same port")
    }

    fileprivate static var receiveIsWaiting: AsyncSocketError {
        .badConfiguration(
            .startDTLS, "another task has a pending receive: let it complete, or cancel it, before calling startDTLS")
    }
}
