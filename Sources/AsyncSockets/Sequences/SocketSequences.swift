// Rules of the sequences:
//  1. They keep no bytes: each element is a read of its own. The next read finds what a loop leaves.
//  2. A sequence belongs to the connection, and to the side of startTLS, on which it began: after that its
//     iterators have no further element. So nothing that came in plaintext appears after the upgrade.
//  3. The end is an orderly end. Any other throws.

public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// The bytes as they come, up to an orderly end. Each element is a `read(atMost:timeout:)`.
    ///
    /// ```swift
    /// for try await bytes in socket.chunks { try await socket.write(bytes) }
    /// ```
    public var chunks: Chunks { chunks() }

    /// The bytes as they come, at most `maxLength` at a time, up to an orderly end. A `maxLength` below 1
    /// makes the loop throw `.badParameter`.
    ///
    /// - Parameters:
    ///   - maxLength: The most bytes of a chunk.
    ///   - idleTimeout: When no byte has come or gone for so long, the connection ends, and the loop
    ///     throws `.idleTimeout`; nil: never. The time runs until the loop is left, while its body works too,
    ///     and not during a handshake.
    public func chunks(atMost maxLength: Int = 65536, idleTimeout: Duration? = nil) -> Chunks {
        Chunks(socket: self, maxLength: maxLength, idleTimeout: idleTimeout)
    }

    /// The lines of text up to an orderly end, each of at most 64 KiB: see `readLine(maxLength:timeout:)`.
    ///
    /// ```swift
    /// for try await line in socket.lines { print(line) }
    /// ```
    public var lines: Lines { lines() }

    /// The lines of text up to an orderly end, each of at most `maxLength` bytes with its end.
    ///
    /// - Parameters:
    ///   - maxLength: The most bytes of a line with its end.
    ///   - idleTimeout: As for `chunks(atMost:idleTimeout:)`.
    public func lines(maxLength: ByteLimit = 65536, idleTimeout: Duration? = nil) -> Lines {
        Lines(socket: self, maxLength: maxLength.count, idleTimeout: idleTimeout)
    }

    /// The bytes of a connection as they come.
    ///
    /// It ends with an orderly end of the connection, and when `startTLS` begins. A loop that is left early
    /// loses nothing. A cancelled task gets a `CancellationError`.
    public struct Chunks: AsyncSequence, Sendable {
        /// An `AsyncSocketError`: why the connection has ended. Or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let socket: AsyncSocket
        fileprivate let maxLength: Int
        fileprivate let idleTimeout: Duration?

        /// Begins at the next unread byte.
        public func makeAsyncIterator() -> Iterator {
            Iterator(scope: SequenceScope(socket, idleTimeout), maxLength: maxLength)
        }

        /// Reads one chunk after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let scope: SequenceScope
            fileprivate let maxLength: Int

            /// The next bytes; nil after the end.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws -> Data? {
                guard let connection = try scope.openConnection() else { return nil }
                try AsyncSocketError.checkMaxLength(maxLength)
                do {
                    return try await connection.read(.anyBytes, maxLength, OperationLimit(nil))
                } catch {
                    if let failure = scope.failure(error) { throw failure }
                    return nil
                }
            }
        }
    }

    /// The lines of text of a connection.
    ///
    /// It ends with an orderly end of the connection, and when `startTLS` begins. A loop that is left early
    /// loses nothing. A cancelled task gets a `CancellationError`.
    public struct Lines: AsyncSequence, Sendable {
        /// An `AsyncSocketError`: why the connection has ended. Or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let socket: AsyncSocket
        fileprivate let maxLength: Int
        fileprivate let idleTimeout: Duration?

        /// Begins at the next unread byte.
        public func makeAsyncIterator() -> Iterator {
            Iterator(scope: SequenceScope(socket, idleTimeout), line: LineReader(maxLength: maxLength))
        }

        /// Reads one line after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let scope: SequenceScope
            fileprivate let line: LineReader

            /// The next line, without its end; nil after the end.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws -> String? {
                guard let connection = try scope.openConnection() else { return nil }
                try AsyncSocketError.checkMaxLength(line.maxLength)
                do {
                    return try await connection.readLine(line, OperationLimit(nil))
                } catch {
                    if let failure = scope.failure(error) { throw failure }
                    return nil
                }
            }
        }
    }
}
