internal import SocketBuffers
internal import SocketCore

/// The name used in code that does not otherwise depend on `SocketListener`.
typealias ProxyExpectation = SocketListener.ProxyProtocol

extension SocketListener {
    /// Specifies which connections start with a PROXY protocol header, in which a proxy passes on the address
    /// of its client: `.required(from: try .addresses(["10.0.0.0/8"]))`.
    ///
    /// Whether a header is expected depends only on the peer's address, never on the bytes it sends. A
    /// listener that guessed would let any client choose the address reported for it (PROXY protocol, section
    /// 2). The header precedes TLS and all application data. Once it has been read, the socket's
    /// `proxyHeader` is set. A connection without a valid header fails with `.proxyFailed`.
    ///
    /// Source: the PROXY protocol, versions 1 and 2 (`doc/proxy-protocol.txt` of HAProxy).
    public struct ProxyProtocol: Sendable, Hashable {
        /// The peers that must send a header.
        public struct Sources: Sendable, Hashable {
            private enum Kind: Hashable {
                case anyone
                case prefixes([AddressPrefix], includesUnix: Bool)
            }

            private let kind: Kind

            /// All peers. **Dangerous** if anybody other than your proxies can connect, because any client
            /// can then choose the address that you see.
            public static let anyone = Sources(kind: .anyone)

            /// Returns the peers with the given addresses.
            ///
            /// - Parameter texts: Addresses (`192.0.2.1`, `2001:db8::1`), prefixes (`192.0.2.0/24`), or
            ///   `unix:` for all peers on a Unix-domain socket.
            /// - Throws: `.badParameter` for any other text, and for a prefix with bits set after the prefix
            ///   length, such as `10.0.0.1/8`.
            public static func addresses(_ texts: [String]) throws(AsyncSocketError) -> Sources {
                var prefixes: [AddressPrefix] = []
                for text in texts where text != unixWord {
                    guard let prefix = AddressPrefix(text) else {
                        throw .badParameter(
                            .listen, "\"\(text)\" is not an address, a prefix such as 192.0.2.0/24, or \(unixWord)")
                    }
                    prefixes.append(prefix)
                }
                return Sources(kind: .prefixes(prefixes, includesUnix: texts.contains(unixWord)))
            }

            private static let unixWord = "unix:"

            func contains(_ peer: SocketEndpoint) -> Bool {
                switch kind {
                case .anyone: true
                case .prefixes(let prefixes, let includesUnix):
                    peer.family == .unix ? includesUnix : prefixes.contains { $0.contains(peer) }
                }
            }
        }

        /// How connections from other sources are treated.
        public enum UnlistedSources: Sendable, Hashable {
            /// Connections from other sources are closed immediately.
            case reject
            /// Connections from other sources have no header and are served with their real address. If such
            /// a peer sends a header anyway, it is treated as data.
            case accept
        }

        /// The peers that must always send a header.
        public let sources: Sources
        /// How connections from all other sources are treated.
        public let unlistedSources: UnlistedSources
        /// How long a header may take to arrive. The specification requires at least three seconds, so that a
        /// single lost segment does not break the connection.
        public let timeout: Duration
        /// The maximum size of a version 2 header, in bytes.
        public let maximumHeaderBytes: Int

        /// Requires a header on every connection from `sources`.
        ///
        /// - Parameters:
        ///   - sources: Your proxies.
        ///   - unlistedSources: How connections from other sources are treated. By default, they are closed
        ///     immediately.
        ///   - timeout: How long a header may take to arrive. The default is 3 seconds.
        ///   - maximumHeaderBytes: The maximum size of a version 2 header, in bytes. The default is 4 KiB. A
        ///     version 1 header has at most 107 bytes.
        public static func required(
            from sources: Sources, unlistedSources: UnlistedSources = .reject, timeout: Duration = .seconds(3),
            maximumHeaderBytes: Int = 4096
        ) -> ProxyProtocol {
            ProxyProtocol(
                sources: sources, unlistedSources: unlistedSources, timeout: timeout, maximumHeaderBytes: maximumHeaderBytes)
        }
    }
}

extension SocketListener.ProxyProtocol {
    /// Reads the header from an accepted connection, without consuming any byte after it.
    nonisolated(nonsending) func receiveHeader(on socket: AsyncSocket) async throws {
        guard try expectsHeader(on: socket) else { return }
        let reader = ProxyHeaderReader(maximumCount: maximumHeaderBytes)
        do {
            _ = try await socket.read(.reader(reader.reader), .max, timeout)
        } catch {
            throw explain(error)
        }
        reader.keepHeader(on: socket)
    }

    // Separate functions, as in `TaskOperations`, so that a suspended task holds no memory for them.

    @inline(never)
    private func expectsHeader(on socket: AsyncSocket) throws -> Bool {
        if let peer = socket.connectedAddress, sources.contains(peer) { return true }
        if unlistedSources == .accept { return false }
        throw failure("the peer is not one of the proxies in sources: add its address or set unlistedSources to .accept")
    }

    @inline(never)
    private func explain(_ error: any Error) -> any Error {
        switch error {
        case let error as ProxyHeaderError: failure("the PROXY header is invalid: \(error.message)")
        case let error as AsyncSocketError where error.isOrderlyEnd:
            failure("the peer closed the connection before the PROXY header was complete")
        case let error as AsyncSocketError where error.code == .readTimeout:
            failure("no complete PROXY header was received within \(AsyncSocketError.text(ofSeconds: timeout.inSeconds))")
        default: error
        }
    }

    private func failure(_ message: String) -> AsyncSocketError {
        AsyncSocketError(.proxyFailed, fault: .peer, operation: .accept, message: message)
    }
}

/// Parses one PROXY header from the read buffer.
private final class ProxyHeaderReader: @unchecked Sendable {
    // Unchecked: a reader belongs to a single read, which stores the header before its task resumes.
    private let maximumCount: Int
    private var header: ProxyHeader?
    private(set) lazy var reader = BufferReader { [unowned self] buffer, _ in take(from: buffer) }

    init(maximumCount: Int) {
        self.maximumCount = maximumCount
    }

    @inline(never)
    func keepHeader(on socket: AsyncSocket) { socket.proxyHeader = header }

    private func take(from buffer: PreBuffer) -> BufferReader.Step {
        switch ProxyHeader.parse(UnsafeRawBufferPointer(buffer.readableBytes), maximumCount: maximumCount) {
        case .incomplete(let minimumCount): return .needs(minimumCount)
        case .failed(let error): return .failed(error)
        case .complete(let found, let count):
            header = found
            buffer.consume(count)
            return .done
        }
    }
}
