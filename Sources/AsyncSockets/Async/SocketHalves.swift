public import FoundationEssentials
internal import SocketCore

/// The reading half of a connection. See `AsyncSocket.input`.
///
/// Pass it only to the one task that reads. Two tasks would each receive part of the bytes, and the compiler
/// cannot detect that. It holds a strong reference to the socket and forwards every call to the socket.
public struct SocketInput: Sendable {
    @usableFromInline let socket: AsyncSocket

    /// The received bytes, in the chunks in which they arrive. See `AsyncSocket.chunks`.
    public var chunks: AsyncSocket.Chunks { socket.chunks }

    /// The lines of text. See `AsyncSocket.lines`.
    public var lines: AsyncSocket.Lines { socket.lines }

    /// Returns the received bytes in chunks. See `AsyncSocket.chunks(maxLength:idleTimeout:)`.
    public func chunks(maxLength: Int = 65536, idleTimeout: Duration? = nil) -> AsyncSocket.Chunks {
        socket.chunks(maxLength: maxLength, idleTimeout: idleTimeout)
    }

    /// Returns the lines of text. See `AsyncSocket.lines(maxLength:idleTimeout:)`.
    public func lines(maxLength: Int = 65536, idleTimeout: Duration? = nil) -> AsyncSocket.Lines {
        socket.lines(maxLength: maxLength, idleTimeout: idleTimeout)
    }

    /// Returns the frames. See `AsyncSocket.frames(_:idleTimeout:)`.
    public func frames<Format: Framing>(_ framing: Format, idleTimeout: Duration? = nil) -> AsyncSocket.Frames<Format> {
        socket.frames(framing, idleTimeout: idleTimeout)
    }

    /// Reads the next bytes. See `AsyncSocket.read(maxLength:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func read(
        maxLength: Int = 65536, timeout: Duration? = nil
    ) async throws -> Data? {
        try await socket.read(maxLength: maxLength, timeout: timeout)
    }

    /// Reads exactly `count` bytes. See `AsyncSocket.read(exactly:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func read(exactly count: Int, timeout: Duration? = nil) async throws -> Data {
        try await socket.read(exactly: count, timeout: timeout)
    }

    /// Reads up to and including a delimiter. See `AsyncSocket.read(until:maxLength:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func read(
        until delimiter: Data, maxLength: Int = AsyncSocket.defaultMaxLength, timeout: Duration? = nil
    ) async throws -> Data {
        try await socket.read(until: delimiter, maxLength: maxLength, timeout: timeout)
    }

    /// Reads the next line. See `AsyncSocket.readLine(maxLength:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func readLine(
        maxLength: Int = 65536, timeout: Duration? = nil
    ) async throws -> String? {
        try await socket.readLine(maxLength: maxLength, timeout: timeout)
    }

    /// Reads the next frame. See `AsyncSocket.readFrame(_:timeout:)`.
    public nonisolated(nonsending) func readFrame<Format: Framing>(
        _ framing: Format, timeout: Duration? = nil
    ) async throws -> Format.Frame? {
        try await socket.readFrame(framing, timeout: timeout)
    }

    /// Reads until the peer closes the connection. See `AsyncSocket.readToEnd(maxLength:timeout:)`.
    public nonisolated(nonsending) func readToEnd(
        maxLength: Int = AsyncSocket.defaultMaxLength, timeout: Duration? = nil
    ) async throws -> Data {
        try await socket.readToEnd(maxLength: maxLength, timeout: timeout)
    }

    /// Receives a file of `count` bytes. See `AsyncSocket.readToFile(_:exactly:timeout:progress:)`.
    public nonisolated(nonsending) func readToFile(
        _ path: String, exactly count: Int, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws {
        try await socket.readToFile(path, exactly: count, timeout: timeout, progress: progress)
    }

    /// Receives a file up to the end of the stream. See
    /// `AsyncSocket.readToFile(_:maxLength:timeout:progress:)`.
    @discardableResult
    public nonisolated(nonsending) func readToFile(
        _ path: String, maxLength: Int, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws -> Int {
        try await socket.readToFile(path, maxLength: maxLength, timeout: timeout, progress: progress)
    }
}

/// The writing half of a connection. See `AsyncSocket.output`.
///
/// It holds a strong reference to the socket and forwards every call to the socket.
public struct SocketOutput: Sendable {
    @usableFromInline let socket: AsyncSocket

    /// Writes bytes. See `AsyncSocket.write(_:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func write(_ data: Data, timeout: Duration? = nil) async throws {
        try await socket.write(data, timeout: timeout)
    }

    /// Writes bytes. See `AsyncSocket.write(_:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func write(_ bytes: [UInt8], timeout: Duration? = nil) async throws {
        try await socket.write(bytes, timeout: timeout)
    }

    /// Writes a string as UTF-8. See `AsyncSocket.write(_:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func write(_ text: String, timeout: Duration? = nil) async throws {
        try await socket.write(text, timeout: timeout)
    }

    /// Writes a line of text. See `AsyncSocket.writeLine(_:endingWith:timeout:)`.
    @inlinable
    public nonisolated(nonsending) func writeLine(
        _ line: String, endingWith end: String = "\r\n", timeout: Duration? = nil
    ) async throws {
        try await socket.writeLine(line, endingWith: end, timeout: timeout)
    }

    /// Writes a frame. See `AsyncSocket.write(_:as:timeout:)`.
    public nonisolated(nonsending) func write<Format: Framing>(
        _ frame: Format.Frame, as framing: Format, timeout: Duration? = nil
    ) async throws {
        try await socket.write(frame, as: framing, timeout: timeout)
    }

    /// Writes part of a file. See `AsyncSocket.write(contentsOfFile:offset:length:timeout:progress:)`.
    public nonisolated(nonsending) func write(
        contentsOfFile path: String, offset: Int = 0, length: Int? = nil, timeout: Duration? = nil,
        progress: ((TransferProgress) -> Void)? = nil
    ) async throws {
        try await socket.write(contentsOfFile: path, offset: offset, length: length, timeout: timeout, progress: progress)
    }

    /// Sends buffered writes immediately. See `AsyncSocket.flush()`.
    public func flush() { socket.flush() }

    /// Closes the writing side after all queued writes. See `AsyncSocket.closeWriteStream()`.
    public func closeWriteStream() { socket.closeWriteStream() }
}
