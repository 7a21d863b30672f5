public import FoundationEssentials
internal import SocketCore

extension AsyncSocket {
    /// The half that reads, for a task that must not write.
    ///
    /// ```swift
    /// async let _ = listen(to: socket.input)
    /// for await line in outbox { try await socket.output.writeLine(line) }
    /// ```
    public var input: SocketInput { SocketInput(socket: self) }

    /// The half that writes, for a task that must not read.
    public var output: SocketOutput { SocketOutput(socket: self) }
}

/// The half of a connection that reads: see `AsyncSocket.input`.
///
/// Give it to the one task that reads: two would share the bytes among them, and the compiler cannot see
/// that. It keeps the socket, and its methods do what the socket's do.
public struct SocketInput: Sendable {
    fileprivate let socket: AsyncSocket

    /// The bytes as they come: see `AsyncSocket.chunks`.
    public var chunks: AsyncSocket.Chunks { socket.chunks }

    /// The lines of text: see `AsyncSocket.lines`.
    public var lines: AsyncSocket.Lines { socket.lines }

    /// The bytes as they come: see `AsyncSocket.chunks(atMost:idleTimeout:)`.
    public func chunks(atMost maxLength: Int = 65536, idleTimeout: Duration? = nil) -> AsyncSocket.Chunks {
        socket.chunks(atMost: maxLength, idleTimeout: idleTimeout)
    }

    /// The lines of text: see `AsyncSocket.lines(maxLength:idleTimeout:)`.
    public func lines(maxLength: ByteLimit = 65536, idleTimeout: Duration? = nil) -> AsyncSocket.Lines {
        socket.lines(maxLength: maxLength, idleTimeout: idleTimeout)
    }

    /// The frames: see `AsyncSocket.frames(_:idleTimeout:)`.
    public func frames<Format: Framing>(_ framing: Format, idleTimeout: Duration? = nil) -> AsyncSocket.Frames<Format> {
        socket.frames(framing, idleTimeout: idleTimeout)
    }

    /// The next bytes: see `AsyncSocket.read(atMost:timeout:)`.
    public nonisolated(nonsending) func read(
        atMost maxLength: Int = 65536, timeout: Duration? = nil
    ) async throws -> Data? {
        try await socket.read(atMost: maxLength, timeout: timeout)
    }

    /// So many bytes: see `AsyncSocket.read(exactly:timeout:)`.
    public nonisolated(nonsending) func read(exactly count: Int, timeout: Duration? = nil) async throws -> Data {
        try await socket.read(exactly: count, timeout: timeout)
    }

    /// The bytes up to a delimiter: see `AsyncSocket.read(until:maxLength:timeout:)`.
    public nonisolated(nonsending) func read(
        until delimiter: Data, maxLength: ByteLimit = AsyncSocket.defaultMaxLength, timeout: Duration? = nil
    ) async throws -> Data {
        try await socket.read(until: delimiter, maxLength: maxLength, timeout: timeout)
    }

    /// The next line: see `AsyncSocket.readLine(maxLength:timeout:)`.
    public nonisolated(nonsending) func readLine(
        maxLength: ByteLimit = 65536, timeout: Duration? = nil
    ) async throws -> String? {
        try await socket.readLine(maxLength: maxLength, timeout: timeout)
    }

    /// The next frame: see `AsyncSocket.readFrame(_:timeout:)`.
    public nonisolated(nonsending) func readFrame<Format: Framing>(
        _ framing: Format, timeout: Duration? = nil
    ) async throws -> Format.Frame? {
        try await socket.readFrame(framing, timeout: timeout)
    }

    /// Everything up to the end: see `AsyncSocket.readToEnd(maxLength:timeout:)`.
    public nonisolated(nonsending) func readToEnd(
        maxLength: ByteLimit = AsyncSocket.defaultMaxLength, timeout: Duration? = nil
    ) async throws -> Data {
        try await socket.readToEnd(maxLength: maxLength, timeout: timeout)
    }

    /// A file of so many bytes: see `AsyncSocket.readToFile(_:exactly:timeout:progress:)`.
    public nonisolated(nonsending) func readToFile(
        _ path: String, exactly count: Int, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws {
        try await socket.readToFile(path, exactly: count, timeout: timeout, progress: progress)
    }

    /// A file up to the end: see `AsyncSocket.readToFile(_:maxLength:timeout:progress:)`.
    @discardableResult
    public nonisolated(nonsending) func readToFile(
        _ path: String, maxLength: ByteLimit, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws -> Int {
        try await socket.readToFile(path, maxLength: maxLength, timeout: timeout, progress: progress)
    }
}

/// The half of a connection that writes: see `AsyncSocket.output`.
///
/// It keeps the socket, and its methods do what the socket's do.
public struct SocketOutput: Sendable {
    fileprivate let socket: AsyncSocket

    /// Writes bytes: see `AsyncSocket.write(_:timeout:)`.
    public nonisolated(nonsending) func write(_ data: Data, timeout: Duration? = nil) async throws {
        try await socket.write(data, timeout: timeout)
    }

    /// Writes bytes: see `AsyncSocket.write(_:timeout:)`.
    public nonisolated(nonsending) func write(_ bytes: [UInt8], timeout: Duration? = nil) async throws {
        try await socket.write(bytes, timeout: timeout)
    }

    /// Writes a text: see `AsyncSocket.write(_:timeout:)`.
    public nonisolated(nonsending) func write(_ text: String, timeout: Duration? = nil) async throws {
        try await socket.write(text, timeout: timeout)
    }

    /// Writes a line of text: see `AsyncSocket.writeLine(_:endingWith:timeout:)`.
    public nonisolated(nonsending) func writeLine(
        _ line: String, endingWith end: String = "\r\n", timeout: Duration? = nil
    ) async throws {
        try await socket.writeLine(line, endingWith: end, timeout: timeout)
    }

    /// Writes a frame: see `AsyncSocket.write(_:as:timeout:)`.
    public nonisolated(nonsending) func write<Format: Framing>(
        _ frame: Format.Frame, as framing: Format, timeout: Duration? = nil
    ) async throws {
        try await socket.write(frame, as: framing, timeout: timeout)
    }

    /// Writes a part of a file: see `AsyncSocket.write(contentsOfFile:offset:length:timeout:progress:)`.
    public nonisolated(nonsending) func write(
        contentsOfFile path: String, offset: Int = 0, length: Int? = nil, timeout: Duration? = nil,
        progress: ((TransferProgress) -> Void)? = nil
    ) async throws {
        try await socket.write(contentsOfFile: path, offset: offset, length: length, timeout: timeout, progress: progress)
    }

    /// Sends at once what has been written: see `AsyncSocket.flush()`.
    public func flush() { socket.flush() }

    /// Ends this direction, once all is written: see `AsyncSocket.closeWriteStream()`.
    public func close() { socket.closeWriteStream() }
}
