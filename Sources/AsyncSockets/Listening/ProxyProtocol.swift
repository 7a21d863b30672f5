internal import SocketBuffers
public import SocketCore

/// The name for the code below the listener.
typealias ProxyExpectation = SocketListener.ProxyProtocol

extension SocketListener {
    /// Which connections begin with a header of the PROXY protocol, which names the client on whose behalf a
    /// proxy connects: `.required(from: try .addresses(["10.0.0.0/8"]))`.
    ///
    /// The address of the peer decides, and never its bytes: a listener that guessed would let each client
    /// choose the address that it has for you (the PROXY protocol, section 2). The header comes before TLS
    /// and before every byte for you; then the socket has a `proxyHeader`. A connection without a valid
    /// header ends with `.proxyFailed`.
    ///
    /// Source: the PROXY protocol, versions 1 and 2 (`doc/proxy-protocol.txt` of HAProxy).
    public struct ProxyProtocol: Sendable, Hashable {
        /// Whose connections begin with a header.
        public struct Sources: Sendable, Hashable {
            private enum Kind: Hashable {
                case anyone
                case prefixes([AddressPrefix], includesUnix: Bool)
            }

            private let kind: Kind

            /// Everyone. **Dangerous** where anyone but your proxies can connect: a stranger chooses the
            /// address that you see.
            public static let anyone = Sources(kind: .anyone)

            /// The peers with these addresses.
            ///
            /// - Parameter texts: Each an address (`192.0.2.1`, `2001:db8::1`), a prefix (`192.0.2.0/24`), or
            ///   `unix:` for every peer on a Unix-domain socket.
            /// - Throws: `.badParameter` for another text, and for bits behind a prefix, as in `10.0.0.1/8`.
            public static func addresses(_ texts: [String]) throws(AsyncSocketError) -> Sources {
                var prefixes: [AddressPrefix] = []
                for text in texts where text != unixWord {
                    guard let prefix = AddressPrefix(text) else {
                        throw .badParameter(
                            "accept", "\"\(text)\" is not an address, a prefix such as 192.0.2.0/24, or \(unixWord)")
                    }
                    prefixes.append(prefix)
                }
                return Sources(kind: .prefixes(prefixes, includesUnix: texts.contains(unixWord)))
            }

            private static let unixWord = "unix:"

            func contains(_ peer: SocketAddress) -> Bool {
                switch kind {
                case .anyone: true
                case .prefixes(let prefixes, let includesUnix):
                    peer.family == .unix ? includesUnix : prefixes.contains { $0.contains(peer) }
                }
            }
        }

        /// The treatment of connections from other sources.
        public enum Others: Sendable, Hashable {
            /// They are closed at once.
            case refused
            /// They have no header, and are served with their real address. If one sends a header all the
            /// same, these are its first bytes of data.
            case served
        }

        /// The sources whose connections always begin with a header.
        public let sources: Sources
        /// The treatment of all others.
        public let others: Others
        /// How long a header may take. The specification asks for three seconds at least, so that one lost
        /// segment does no harm.
        public let timeout: Duration
        /// The most bytes of a header of version 2.
        public let maximumHeaderBytes: Int

        /// A header begins every connection from `sources`.
        ///
        /// - Parameters:
        ///   - sources: Your proxies.
        ///   - others: The treatment of connections from other sources: refused, by default.
        ///   - timeout: How long a header may take; 3 seconds by default.
        ///   - maximumHeaderBytes: The most bytes of a header of version 2; 4 KiB by default. A header of
        ///     version 1 has at most 107.
        public static func required(
            from sources: Sources, others: Others = .refused, timeout: Duration = .seconds(3),
            maximumHeaderBytes: Int = ProxyHeader.defaultMaximumCount
        ) -> ProxyProtocol {
            ProxyProtocol(
                sources: sources, others: others, timeout: timeout, maximumHeaderBytes: maximumHeaderBytes)
        }
    }
}

extension SocketListener.ProxyProtocol {
    /// Takes the header from the beginning of an accepted connection, and not one byte more.
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

    // Functions of their own, as in `TaskOperations`: a task that waits keeps no memory for them.

    @inline(never)
    private func expectsHeader(on socket: AsyncSocket) throws -> Bool {
        if let peer = socket.connectedAddress, sources.contains(peer) { return true }
        if others == .served { return false }
        throw failure("the peer is not one of the proxies in sources, and others are refused")
    }

    @inline(never)
    private func explain(_ error: any Error) -> any Error {
        switch error {
        case let error as ProxyHeaderError: failure("the PROXY header is invalid: \(error.message)")
        case let error as AsyncSocketError where error.isOrderlyEnd:
            failure("the connection ended before its PROXY header was complete")
        case let error as AsyncSocketError where error.code == .readTimeout:
            failure("the PROXY header did not arrive within \(timeout)")
        default: error
        }
    }

    private func failure(_ message: String) -> AsyncSocketError {
        AsyncSocketError(.proxyFailed, blame: .peer, operation: "accept", message: message)
    }
}

/// Reads one PROXY header out of the buffer.
private final class ProxyHeaderReader: @unchecked Sendable {
    // Unchecked: a reader belongs to one read, which writes the header before its task goes on.
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
