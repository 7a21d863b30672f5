// Rules of the sequences:
//  1. Sequences buffer no bytes: each element is a separate read. Bytes that a loop does not consume remain
//     for the next read.
//  2. An iterator belongs to the connection on which it was created. It continues after an upgrade to TLS:
//     because of rule 1, every element after `startTLS` consists of decrypted bytes only.
//  3. A sequence finishes after an orderly close. If the connection closes in any other way, it throws.

public import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// The received bytes in chunks, until an orderly close. Each element is the result of one
    /// `read(maxLength:timeout:)`.
    ///
    /// ```swift
    /// for try await bytes in socket.chunks { try await socket.write(bytes) }
    /// ```
    public var chunks: Chunks { chunks() }

    /// Returns the received bytes in chunks of at most `maxLength` bytes, until an orderly close. If
    /// `maxLength` is less than 1, the loop throws `.badParameter`.
    ///
    /// - Parameters:
    ///   - maxLength: The maximum number of bytes in a chunk.
    ///   - idleTimeout: If no byte is received or sent for this long, the connection closes, and the loop
    ///     throws `.idleTimeout`. `nil` means no limit. The clock runs until the loop exits, including
    ///     while the loop body runs, but not during a handshake.
    public func chunks(maxLength: Int = 65536, idleTimeout: Duration? = nil) -> Chunks {
        Chunks(socket: self, maxLength: maxLength, idleTimeout: idleTimeout)
    }

    /// The lines of text until an orderly close, each of at most 64 KiB: see `readLine(maxLength:timeout:)`.
    ///
    /// ```swift
    /// for try await line in socket.lines { print(line) }
    /// ```
    public var lines: Lines { lines() }

    /// Returns the lines of text until an orderly close, each of at most `maxLength` bytes including its
    /// terminator.
    ///
    /// - Parameters:
    ///   - maxLength: The maximum number of bytes in a line, including its terminator.
    ///   - idleTimeout: See `chunks(maxLength:idleTimeout:)`.
    public func lines(maxLength: Int = 65536, idleTimeout: Duration? = nil) -> Lines {
        Lines(socket: self, maxLength: maxLength, idleTimeout: idleTimeout)
    }

    /// The received bytes of a connection, in chunks.
    ///
    /// The sequence finishes after an orderly close of the connection. The loop may call `startTLS`: once
    /// that has returned, every later element is decrypted data. Leaving a loop early loses no data. If the
    /// task is cancelled, the loop throws a `CancellationError`.
    public struct Chunks: AsyncSequence, Sendable {
        /// An `AsyncSocketError` with the reason why the connection closed, or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let socket: AsyncSocket
        fileprivate let maxLength: Int
        fileprivate let idleTimeout: Duration?

        /// Returns an iterator that starts at the next unread byte.
        public func makeAsyncIterator() -> Iterator {
            Iterator(scope: SequenceScope(socket, idleTimeout), maxLength: maxLength)
        }

        /// Reads one chunk at a time.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let scope: SequenceScope
            fileprivate let maxLength: Int

            /// Returns the next chunk, or `nil` at the end of the sequence.
            public nonisolated(nonsending) mutating func next(
                isolation actor: (any Actor)? = #isolation
            ) async throws -> Data? {
                let connection = try scope.openConnection()
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
    /// The sequence finishes after an orderly close of the connection. The loop may call `startTLS`: once
    /// that has returned, every later element is decrypted data. Leaving a loop early loses no data. If the
    /// task is cancelled, the loop throws a `CancellationError`.
    public struct Lines: AsyncSequence, Sendable {
        /// An `AsyncSocketError` with the reason why the connection closed, or a `CancellationError`.
        public typealias Failure = any Error

        fileprivate let socket: AsyncSocket
        fileprivate let maxLength: Int
        fileprivate let idleTimeout: Duration?

        /// Returns an iterator that starts at the next unread byte.
        public func makeAsyncIterator() -> Iterator {
            Iterator(scope: SequenceScope(socket, idleTimeout), maxLength: maxLength)
        }

        /// Reads one line at a time.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let scope: SequenceScope
            fileprivate let maxLength: Int

            /// Returns the next line without its terminator, or `nil` at the end of the sequence.
            @inlinable
            public nonisolated(nonsending) mutating func next(
                isolation actor: (any Actor)? = #isolation
            ) async throws -> String? {
                switch try start() {
                case .completed(let line): return line
                case .pending(let line): return try await finish(line)
                }
            }

            @usableFromInline
            func start() throws -> StartedLine {
                let connection = try scope.openConnection()
                try AsyncSocketError.checkMaxLength(maxLength)
                return connection.startLine(maxLength, OperationLimit(nil))
            }

            @usableFromInline
            nonisolated(nonsending) func finish(_ line: PendingLine) async throws -> String? {
                do {
                    return try await line.value()
                } catch {
                    if let failure = scope.failure(error) { throw failure }
                    return nil
                }
            }
        }
    }
}

/// The scope of a sequence: one connection of a socket.
struct SequenceScope {
    let socket: AsyncSocket
    private let connection: StreamConnection?
    private let idle: IdleGuard?

    init(_ socket: AsyncSocket, _ idleTimeout: Duration?) {
        self.socket = socket
        connection = socket.connection
        let operations = connection.map { TaskOperations(connection: $0) }
        idle = idleTimeout.flatMap { operations?.endWhenIdle($0) }.map { IdleGuard($0) }
    }

    /// Returns the connection to read from.
    func openConnection() throws(AsyncSocketError) -> TaskOperations {
        guard let connection else { throw AsyncSocket.notInUse(.read) }
        return TaskOperations(connection: connection)
    }

    /// Returns the error for the sequence to throw, or `nil` if the sequence simply finishes: after an
    /// orderly close, or if this side closed the connection and the socket has since been reused.
    func failure(_ error: any Error) -> (any Error)? {
        guard let error = error as? AsyncSocketError else { return error }
        let isOver = error.code == .closed && socket.connection !== connection
        return error.isOrderlyEnd || isOver ? nil : error
    }
}
