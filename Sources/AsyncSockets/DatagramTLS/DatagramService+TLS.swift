internal import SocketBuffers
internal import SocketCore

/// DTLS on a UDP socket, and the socket of a listener's peer.
extension DatagramService {
    /// The messages for DTLS and for the sockets of peers.
    func serveTLS(_ message: DatagramMessage) {
        switch message {
        case .unreachable(let error): report(error, about: peer.address)
        case .startTLS(let request): startTLS(request)
        case .upgrading(let news): upgrade?.receive(news)
        case .opened, .events, .reportFailures, .connect, .disconnect, .resolved, .send, .refuse, .judgedSend, .judgedReceive,
            .receive,
            .setReceiveMode, .roomIsBack, .setSendFilter, .setReceiveFilter, .configure, .changeDelegateQueue, .awaitEnd,
            .cancel, .closeAfterSending, .close, .perform, .retire:
            break
        }
    }

    /// A datagram did not arrive, as the network says.
    func report(_ error: AsyncSocketError, about address: SocketAddress?) {
        // The messages of a handshake are sent again in datagrams that the path carries.
        if error.errno == SystemError.tooLarge { upgrade?.layer?.measurePath() }
        input.report(error, about: address)
    }

    private func startTLS(_ request: TLSRequest) {
        guard !isClosing, upgrade == nil else {
            request.waiter?.complete(.failure(AsyncSocketError.closing("startDTLS")))
            return
        }
        let around = DatagramUpgrade.Surroundings(
            outbox: outbox, record: record, counts: counts, journal: journal, post: post)
        upgrade = DatagramUpgrade(request, around)
        if input.hasReceivers { return close(.receiveIsWaiting) }
        input.appendStartTLS()
        output.appendStartTLS()
    }

    /// The error ends the socket.
    func goOnWithTLS() -> AsyncSocketError? {
        guard let upgrade, let address = peer.address, let channel = channels.first else { return nil }
        return upgrade.advance(channel, address, configuration.value, input, output)
    }

    /// How much has come and gone; nil during a handshake.
    var progress: CarriedBytes? {
        if let upgrade, !upgrade.isSecure { return nil }
        return CarriedBytes(received: input.byteCount + input.datagramCount, sent: output.byteCount + output.datagramCount)
    }

    /// Begins as the socket of a listener's peer. Before the first message.
    func serve(_ channel: PeerChannel, to key: PeerKey) {
        channels = [channel]
        peer = .connected(key.peer)
        record.withLock { $0.share(key.local ?? channel.descriptor.localAddress, with: key.peer) }
        journal.begin(peer: key.peer)
    }
}

extension AsyncSocketError {
    fileprivate static var receiveIsWaiting: AsyncSocketError {
        .badConfiguration(
            "startDTLS", "a receive is waiting, and its datagram could come before or after the upgrade: let it finish first")
    }
}
