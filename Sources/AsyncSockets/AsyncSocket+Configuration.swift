public import FoundationEssentials
public import Logging
internal import SocketBuffers
public import SocketCore

extension AsyncSocket {
    /// Whether addresses of IPv4 are used, for connecting and for listening. True at first. It counts from
    /// the next `connect` or `accept` on.
    public var isIPv4Enabled: Bool {
        get { configuration.isIPv4Enabled }
        set { configure { $0.isIPv4Enabled = newValue } }
    }

    /// Whether addresses of IPv6 are used, for connecting and for listening. True at first. It counts from
    /// the next `connect` or `accept` on.
    public var isIPv6Enabled: Bool {
        get { configuration.isIPv6Enabled }
        set { configure { $0.isIPv6Enabled = newValue } }
    }

    /// Which family is tried first when a host has addresses of both. True at first, as in CocoaAsyncSocket.
    /// It counts from the next `connect` on.
    public var isIPv4PreferredOverIPv6: Bool {
        get { configuration.isIPv4PreferredOverIPv6 }
        set { configure { $0.isIPv4PreferredOverIPv6 = newValue } }
    }

    /// Seconds between the beginning of one attempt to connect and that of the next (RFC 8305, section 5,
    /// calls it the connection attempt delay). 0.3 at first. When an attempt fails, the next one begins at
    /// once. It counts from the next `connect` on.
    public var alternateAddressDelay: TimeInterval {
        get { configuration.alternateAddressDelay }
        set { configure { $0.alternateAddressDelay = newValue } }
    }

    /// The proxy that makes connections to hosts on the socket's behalf; nil, at first: none. It counts from
    /// the next `connect` on.
    ///
    /// With a proxy, `connect` connects to it, asks it for the host, and tells
    /// `socket(_:didConnectToHost:port:)`, with the host as you wrote it, when the way through is up. A host
    /// name is handed on and resolved by the proxy; nothing is looked up here but the proxy itself. The
    /// timeout of `connect` covers all of it. `connectedAddress` is the proxy's. Reads, writes and `startTLS`
    /// know no difference: what the proxy sends behind its last reply is what came first from the peer.
    /// Unix-domain sockets and listeners have nothing to do with it.
    ///
    /// A proxy that refuses ends the attempt with `.proxyRefused` or `.proxyAuthenticationRequired`, one that
    /// misbehaves with `.proxyFailed`. Towards the proxy nothing is encrypted: it sees what you do not
    /// protect by `startTLS`, and your credentials with it travel in plaintext.
    public var proxy: Proxy? {
        get { configuration.proxy }
        set { configure { $0.proxy = newValue } }
    }

    /// Whether the connection ends as soon as the peer has closed its side (a FIN or, with TLS, a
    /// close_notify) and the bytes before that have been read. True at first.
    ///
    /// When false, `socketDidCloseReadStream(_:)` tells of it, and writing may go on until `disconnect()` or
    /// `closeWriteStream()`.
    public var autoDisconnectOnClosedReadStream: Bool {
        get { configuration.autoDisconnectOnClosedReadStream }
        set { configure { $0.autoDisconnectOnClosedReadStream = newValue } }
    }

    /// Whether a read that times out ends alone, with
    /// `socket(_:didNotReadDataWithTag:bytesSoFar:dueToError:)`, and the connection goes on. False at first:
    /// the connection ends with `.readTimeout`. A write that times out always ends the connection, since the
    /// peer may have a part of it.
    public var keepsConnectionOnReadTimeout: Bool {
        get { configuration.keepsConnectionOnReadTimeout }
        set { configure { $0.keepsConnectionOnReadTimeout = newValue } }
    }

    /// How many bytes may wait in memory to be written; 64 MiB at first.
    ///
    /// It keeps a peer that does not read from filling the memory. A write that would exceed it ends the
    /// connection with `.writeQueueFull`: to leave out that one write would corrupt the stream. A single
    /// write that is larger is taken when nothing else waits. Files do not count, since they use no memory.
    /// See `writeHighWaterMark` for a word before it is too late.
    public var maximumPendingWriteBytes: ByteLimit {
        get { configuration.maximumPendingWriteBytes }
        set { configure { $0.maximumPendingWriteBytes = newValue } }
    }

    /// How many bytes, more than zero, have to wait to be written for the delegate to get
    /// `socket(_:writeQueueReachedHighWater:)`, and `socket(_:writeQueueReachedLowWater:)` once no more than
    /// half of it waits; nil, at first: never.
    public var writeHighWaterMark: Int? {
        get { configuration.writeHighWaterMark }
        set { configure { $0.writeHighWaterMark = newValue } }
    }

    /// Where the socket logs what happens: connecting, handshakes and ends at the level `debug`, lost
    /// connections of a listener as warnings. Never the bytes.
    ///
    /// Each line has the number of the connection, the role and, where it is known, the peer in its metadata.
    /// At first it is the logger of the library, with the label "AsyncSockets" and the level that its
    /// `LogHandler` has. Accepted sockets have their listener's.
    public var logger: Logger {
        get { configuration.logger ?? socketLog.withLock { $0 } }
        set { configure { $0.logger = newValue } }
    }

    // MARK: - Inside

    var configuration: SocketConfiguration {
        state.withLock { $0.configuration.value }
    }

    /// Changes the configuration, and tells the connection that there is.
    func configure(_ change: (inout SocketConfiguration) -> Void) {
        let configuration = state.withLock { state in
            change(&state.configuration.value)
            state.configuration.value.version += 1
            return state.configuration
        }
        connection?.post(.configure(configuration))
    }
}
