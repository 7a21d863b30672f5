internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// The frames of the connection up to an orderly end.
    ///
    /// ```swift
    /// for try await frame in socket.frames(LengthPrefixed<UInt32>(maxLength: 65536)) { … }
    /// ```
    ///
    /// - Parameters:
    ///   - framing: Where a frame ends.
    ///   - idleTimeout: As for `chunks(atMost:idleTimeout:)`.
    public func frames<Format: Framing>(_ framing: Format, idleTimeout: Duration? = nil) -> Frames<Format> {
        Frames(socket: self, framing: framing, idleTimeout: idleTimeout)
    }

    /// The next frame; nil after an orderly end.
    ///
    /// - Parameters:
    ///   - framing: Where a frame ends.
    ///   - timeout: As for `read(atMost:timeout:)`.
    /// - Throws: What `read(atMost:timeout:)` throws, what the framing throws, `.readMaxedOut` for a frame
    ///   that is too long, and `.closedByPeer` for one that an orderly end has cut short.
    public nonisolated(nonsending) func readFrame<Format: Framing>(
        _ framing: Format, timeout: Duration? = nil
    ) async throws -> Format.Frame? {
        guard let operations else { throw Self.notInUse("read") }
        return try await operations.readFrame(FrameReader(framing), OperationLimit(timeout))
    }

    /// Writes a frame: see `write(_:timeout:)`.
    ///
    /// - Throws: What `write(_:timeout:)` throws, and what the framing throws.
    public nonisolated(nonsending) func write<Format: Framing>(
        _ frame: Format.Frame, as framing: Format, timeout: Duration? = nil
    ) async throws {
        var bytes = Data()
        try framing.encode(frame, into: &bytes)
        try await write(bytes, timeout: timeout)
    }

    /// The frames of a connection.
    ///
    /// It ends with an orderly end of the connection, and when `startTLS` begins. A loop that is left early
    /// loses nothing. A cancelled task gets a `CancellationError`.
    public struct Frames<Format: Framing>: AsyncSequence, Sendable {
        /// An `AsyncSocketError`, which says why the connection has ended or what is wrong with a frame, or a
        /// `CancellationError`.
        public typealias Failure = any Error

        fileprivate let socket: AsyncSocket
        fileprivate let framing: Format
        fileprivate let idleTimeout: Duration?

        /// Begins at the next unread byte.
        public func makeAsyncIterator() -> Iterator {
            Iterator(scope: SequenceScope(socket, idleTimeout), reader: FrameReader(framing))
        }

        /// Reads one frame after the other.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let scope: SequenceScope
            fileprivate let reader: FrameReader<Format>

            /// The next frame; nil after the end.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws -> Format.Frame? {
                guard let connection = try scope.openConnection() else { return nil }
                do {
                    return try await connection.readFrame(reader, OperationLimit(nil))
                } catch {
                    // An orderly end within a frame is an error too.
                    if let error = error as? AsyncSocketError, error.isOrderlyEnd { throw error }
                    if let failure = scope.failure(error) { throw failure }
                    return nil
                }
            }
        }
    }
}
