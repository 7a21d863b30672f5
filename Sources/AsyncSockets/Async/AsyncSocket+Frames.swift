internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

extension AsyncSocket {
    /// Returns the connection's frames as an asynchronous sequence that finishes with an orderly close.
    ///
    /// ```swift
    /// for try await frame in socket.frames(LengthPrefixed<UInt32>(maxLength: 65536)) { … }
    /// ```
    ///
    /// - Parameters:
    ///   - framing: The format that splits the byte stream into frames.
    ///   - idleTimeout: See `chunks(maxLength:idleTimeout:)`.
    public func frames<Format: Framing>(_ framing: Format, idleTimeout: Duration? = nil) -> Frames<Format> {
        Frames(socket: self, framing: framing, idleTimeout: idleTimeout)
    }

    /// Reads the next frame. Returns `nil` after an orderly close.
    ///
    /// - Parameters:
    ///   - framing: The format that splits the byte stream into frames.
    ///   - timeout: See `read(maxLength:timeout:)`.
    /// - Throws: The errors of `read(maxLength:timeout:)` and of the framing, `.readMaxedOut` if the frame is
    ///   too long, and `.closedByPeer` if the peer closes the connection in the middle of a frame.
    public nonisolated(nonsending) func readFrame<Format: Framing>(
        _ framing: Format, timeout: Duration? = nil
    ) async throws -> Format.Frame? {
        guard let operations else { throw Self.notInUse(.read) }
        return try await operations.readFrame(FrameReader(framing), OperationLimit(timeout))
    }

    /// Writes a frame. See `write(_:timeout:)`.
    ///
    /// - Throws: The errors of `write(_:timeout:)` and of the framing.
    public nonisolated(nonsending) func write<Format: Framing>(
        _ frame: Format.Frame, as framing: Format, timeout: Duration? = nil
    ) async throws {
        var bytes = Data()
        try framing.encode(frame, into: &bytes)
        try await write(bytes, timeout: timeout)
    }

    /// The frames of a connection.
    ///
    /// The sequence finishes when the connection is closed in an orderly way. The loop may call `startTLS`:
    /// once that has returned, every later element is decrypted data. Exiting the loop early loses no bytes.
    /// A cancelled task receives a `CancellationError`.
    public struct Frames<Format: Framing>: AsyncSequence, Sendable {
        /// An `AsyncSocketError` with the reason the connection closed or the problem with a frame, or a
        /// `CancellationError`.
        public typealias Failure = any Error

        fileprivate let socket: AsyncSocket
        fileprivate let framing: Format
        fileprivate let idleTimeout: Duration?

        /// Returns an iterator that starts at the next unread byte.
        public func makeAsyncIterator() -> Iterator {
            Iterator(scope: SequenceScope(socket, idleTimeout), reader: FrameReader(framing))
        }

        /// An iterator that reads one frame at a time.
        public struct Iterator: AsyncIteratorProtocol {
            fileprivate let scope: SequenceScope
            fileprivate let reader: FrameReader<Format>

            /// Reads the next frame. Returns `nil` at the end of the sequence.
            public nonisolated(nonsending) mutating func next(
                isolation actor: (any Actor)? = #isolation
            ) async throws -> Format.Frame? {
                let connection = try scope.openConnection()
                do {
                    return try await connection.readFrame(reader, OperationLimit(nil))
                } catch {
                    // An orderly close in the middle of a frame is also an error.
                    if let error = error as? AsyncSocketError, error.isOrderlyEnd { throw error }
                    if let failure = scope.failure(error) { throw failure }
                    return nil
                }
            }
        }
    }
}
