extension AsyncSocketError {
    /// The operation that an error is about. Most cases have the name of the call that failed.
    ///
    /// Cases may be added in a minor release: keep a `default` in a `switch`.
    @nonexhaustive
    public enum Operation: String, Sendable, Hashable, CaseIterable, CustomStringConvertible {
        /// Accepting connections, by `accept(onPort:)` and its variants or by a `SocketListener`.
        case accept
        /// `AsyncSocket.init(adopting:)` and `AsyncUDPSocket.adopt(_:)`.
        case adopt
        /// Binding a UDP socket, even implicitly, and creating or changing a `DatagramListener`.
        case bind
        /// `channelBinding(_:)`.
        case channelBinding
        /// `close(timeout:)`, and calls on a socket that this side has closed.
        case close
        /// Connecting a socket, directly or through a proxy.
        case connect
        /// `SocketListener.connections` and `DatagramListener.peers`.
        case connections
        /// `AsyncUDPSocket.deliveryFailures()`.
        case deliveryFailures
        /// `AsyncUDPSocket.exchange(_:with:attempts:timeout:matching:)`.
        case exchange
        /// `exportKeyingMaterial(label:context:length:)`.
        case exportKeyingMaterial
        /// `AsyncUDPSocket.joinMulticastGroup(_:onInterface:fromSource:)`.
        case join
        /// `AsyncUDPSocket.leaveMulticastGroup(_:onInterface:fromSource:)`.
        case leave
        /// Creating or changing a `SocketListener`, and the parameters of `accept(onPort:)` and its variants.
        case listen
        /// `option(_:)`.
        case option
        /// All reads, and the end of a connection that the peer closed.
        case read
        /// The parameters of `readToFile`, and operations on its file.
        case readToFile
        /// Receiving datagrams, by any call, sequence or delegate.
        case receive
        /// `requestClientCertificate`, and the client's response to it.
        case requestClientCertificate
        /// `SocketEndpoint.lookUp(host:port:)`, and looking up the host to connect or send to.
        case resolve
        /// Replacing a process with `HotRestart`, and the `ServiceManager`.
        case restart
        /// `run` of a `SocketListener` or `DatagramListener`.
        case run
        /// Sending datagrams, by any call.
        case send
        /// `AsyncUDPSocket.setMulticastInterface(_:)`.
        case setMulticastInterface
        /// `setSendFilter` and `setReceiveFilter` of an `AsyncUDPSocket`. Their errors are logged.
        case setFilter
        /// `setOption(_:to:)`.
        case setOption
        /// `startDTLS`, and the DTLS settings and handshakes of a `DatagramListener`.
        case startDTLS
        /// `startTLS`, and the TLS settings and handshakes of `connect` and of a `SocketListener`.
        case startTLS
        /// Adding a UDP socket or a `DatagramListener` to its event loop, after it was bound or connected.
        case watch
        /// All writes, including `write(contentsOfFile:offset:length:)`.
        case write

        /// The name of the case, for logs.
        public var description: String { rawValue }
    }
}

extension AsyncSocketError.Operation {
    /// The error code for a task's operation that did not complete in time.
    var timeoutCode: AsyncSocketError.Code {
        switch self {
        case .connect: .connectTimeout
        case .read, .receive, .exchange: .readTimeout
        case .startTLS, .startDTLS, .requestClientCertificate: .handshakeTimeout
        case .write, .send, .close: .writeTimeout
        // These operations have no time limit.
        case .accept, .adopt, .bind, .channelBinding, .connections, .deliveryFailures, .exportKeyingMaterial, .join, .leave,
            .listen, .option, .readToFile, .resolve, .restart, .run, .setFilter, .setMulticastInterface, .setOption, .watch:
            .system
        }
    }

    /// The event that did not happen in time, for messages.
    var missingEvent: String {
        switch self {
        case .connect: "no connection was established"
        case .receive: "no datagram was received"
        case .exchange: "no reply was received"
        case .send: "the datagram was not sent"
        case .startTLS: "the TLS handshake did not complete"
        case .startDTLS: "the DTLS handshake did not complete"
        case .requestClientCertificate: "no client certificate was received"
        default: "the \(self) did not complete"
        }
    }
}
