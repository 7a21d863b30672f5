public import FoundationEssentials
internal import SocketCore

// Bodies terminated by a line with a single dot. The methods of `AsyncSocket` with these names call them.

extension SocketInput {
    /// Reads a body terminated by a line with a single dot, as in SMTP, POP3 and NNTP.
    ///
    /// Returns the content, without the terminating line and without the dots that the sender has added to
    /// lines that start with a dot (RFC 5321, section 4.5.2). Lines keep their CR LF. The body is terminated
    /// by CR LF "." CR LF. A bare CR or LF is content and not a line break, which prevents SMTP smuggling.
    /// The bytes after the body stay unread.
    ///
    /// If the read fails or is cancelled after part of the body has been read, the connection is closed,
    /// because the rest of the body would be read as commands or replies.
    ///
    /// - Parameters:
    ///   - maxLength: The maximum length of the content, 1 MiB by default. If more bytes arrive, the
    ///     connection fails with `.readMaxedOut`.
    ///   - timeout: The time limit for the whole body, starting now. `nil` means no limit.
    /// - Throws: The errors of `read(maxLength:timeout:)`.
    public nonisolated(nonsending) func readDotTerminated(
        maxLength: Int = AsyncSocket.defaultMaxLength, timeout: Duration? = nil
    ) async throws -> Data {
        guard maxLength >= 0 else {
            throw AsyncSocketError.badParameter(.read, "maxLength must be at least 0, but is \(maxLength)")
        }
        guard let operations = socket.operations else { throw AsyncSocket.notInUse(.read) }
        return try await DotBodyReader(operations, maxLength: maxLength, OperationLimit(timeout)).all()
    }

    /// Receives a body terminated by a line with a single dot, and stores its content in a file: see
    /// `readDotTerminated(maxLength:timeout:)`.
    ///
    /// The file is written as by `readToFile(_:maxLength:timeout:progress:)`: it appears under its name when
    /// it is complete and stored on disk.
    ///
    /// - Returns: The length of the file in bytes.
    /// - Throws: The errors of `readToFile(_:maxLength:timeout:progress:)`. If the file cannot be created,
    ///   the connection stays open and the body is unread.
    @discardableResult
    public nonisolated(nonsending) func readDotTerminated(
        toFile path: String, maxLength: Int, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws -> Int {
        guard maxLength >= 0 else {
            throw AsyncSocketError.badParameter(.readToFile, "maxLength must be at least 0, but is \(maxLength)")
        }
        guard let operations = socket.operations else { throw AsyncSocket.notInUse(.readToFile) }
        let limit = OperationLimit(timeout)
        let body = DotBodyReader(operations, maxLength: maxLength, limit)
        return try await FileReception(operations, path, .dotTerminated(body), limit).run(progress)
    }
}

extension SocketOutput {
    /// Writes content as a body terminated by a line with a single dot.
    ///
    /// Adds a dot before each line that starts with a dot (RFC 5321, section 4.5.2), and appends the
    /// terminating line. Each CR LF, CR or LF in the content is a line break, and is sent as CR LF. Do not
    /// write anything else until this returns: it could become part of the body. If the write fails or is
    /// cancelled, the connection is closed, because the peer would read later data as part of the body.
    ///
    /// - Parameters:
    ///   - content: The content. It may be empty.
    ///   - timeout: See `write(_:timeout:)`.
    /// - Throws: The errors of `write(_:timeout:)`.
    public nonisolated(nonsending) func writeDotTerminated(_ content: Data, timeout: Duration? = nil) async throws {
        let (operations, limit) = try socket.prepareWrite(timeout)
        try await DotBodyWriter(operations: operations, limit: limit).write(content)
    }

    /// Writes the content of a file as a body terminated by a line with a single dot: see
    /// `writeDotTerminated(_:timeout:)`. At most 128 KiB of the file are in memory at a time.
    ///
    /// - Parameters:
    ///   - path: The path of a regular file.
    ///   - timeout: The time limit for the whole body, starting now. `nil` means no limit.
    ///   - progress: See `write(contentsOfFile:offset:length:timeout:progress:)`. It counts the bytes of the
    ///     file.
    /// - Throws: The errors of `write(contentsOfFile:offset:length:timeout:progress:)`.
    public nonisolated(nonsending) func writeDotTerminated(
        contentsOfFile path: String, timeout: Duration? = nil, progress: ((TransferProgress) -> Void)? = nil
    ) async throws {
        let (operations, limit) = try socket.prepareWrite(timeout)
        let file = try AsyncSocket.region(ofFile: path, offset: 0, length: nil)
        try await DotBodyWriter(operations: operations, limit: limit).write(file, path, progress)
    }
}
