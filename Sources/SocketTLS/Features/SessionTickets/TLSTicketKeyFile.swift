internal import COpenSSL
internal import SocketBuffers

/// Session ticket keys from a file, which several processes can share. The file is read again when it
/// changes.
///
/// The file has three lines: the previous key, the current key, and the next key. Each line contains 80
/// bytes in Base64 (`openssl rand -base64 80 | tr -d '\n'`), as in HAProxy's `tls-ticket-keys`. The
/// second key encrypts; all three decrypt. To rotate the keys, remove the first line and append a new
/// one, at most once per ticket lifetime, which is an hour. Replace the file with rename(2), so that a
/// partially written file is never read.
public final class TLSTicketKeyFile: TLSTicketKeySource {
    private struct State {
        var keys: TLSTicketKeys
        var stamp: FileStamp
        var lastLook: ContinuousClock.Instant
        var isReading = false
        var failure: TLSError?
    }

    private let path: String
    private let state: Locked<State>

    /// The minimum time between two checks of the file.
    private static let interval = Duration.seconds(1)

    /// Reads the file.
    ///
    /// - Throws: `invalidSettings` if the file cannot be read or does not contain three different keys.
    public init(path: String) throws(TLSError) {
        self.path = path
        let stamp = FileStamp(path: path)
        state = Locked(State(keys: try Self.read(path), stamp: stamp, lastLook: .now))
    }

    /// The keys from the last valid file. At most once a second, this property checks whether the file
    /// has changed. If it has, a separate task reads the file, and the new keys apply when that task
    /// completes.
    public var keys: TLSTicketKeys {
        let now = ContinuousClock.now
        let (keys, looks) = state.withLock { state in
            guard !state.isReading, state.lastLook.duration(to: now) >= Self.interval else { return (state.keys, false) }
            state.lastLook = now
            state.isReading = true
            return (state.keys, true)
        }
        if looks { Task.detached(priority: .utility) { [self] in reload() } }
        return keys
    }

    /// The error that prevents the latest file from being used; `nil` if it is used. As long as a file is
    /// invalid, the keys from the last valid file remain in use.
    public var failure: TLSError? { state.withLock { $0.failure } }

    /// Checks the file now, and reads it if it has changed or the last attempt to read it failed. Blocks the
    /// calling thread.
    public func reload() {
        let stamp = FileStamp(path: path)
        let isNew = state.withLock { $0.stamp != stamp || $0.failure != nil }
        var keys: TLSTicketKeys?
        var failure: TLSError?
        if isNew {
            do throws(TLSError) {
                keys = try Self.read(path)
            } catch {
                failure = error
            }
        }
        state.withLock { state in
            state.isReading = false
            guard isNew else { return }
            state.stamp = stamp
            state.failure = failure
            if let keys { state.keys = keys }
        }
    }

    private static func read(_ path: String) throws(TLSError) -> TLSTicketKeys {
        let file = try SecretBytes.contents(ofFile: path, or: .invalidSettings)
        let keys = try file.withBytes { bytes throws(TLSError) in
            let lines = bytes.split { $0 == 0x0A || $0 == 0x0D }
            guard lines.count == 3 else { throw invalid(path, "contains \(lines.count) lines instead of three") }
            var keys: [TLSTicketKey] = []
            for line in lines { keys.append(try TLSTicketKey(decoded(line, path))) }
            return keys
        }
        guard Set(keys.map(\.name)).count == 3 else { throw invalid(path, "contains the same key name twice") }
        return TLSTicketKeys(current: keys[1], decryptionOnly: [keys[0], keys[2]])
    }

    private static func decoded(_ line: Slice<UnsafeRawBufferPointer>, _ path: String) throws(TLSError) -> SecretBytes {
        // 80 bytes are encoded as 108 characters, including one padding character at the end.
        guard line.count == 108, line.last == UInt8(ascii: "="), line.dropLast().last != UInt8(ascii: "=") else {
            throw invalid(path, "contains a line that is not 80 bytes in Base64")
        }
        let block = SecretBytes(count: 81)
        let text = UnsafeRawBufferPointer(rebasing: line).assumingMemoryBound(to: UInt8.self)
        let count = withExtendedLifetime(block) {
            EVP_DecodeBlock(
                block.writableBytes.assumingMemoryBound(to: UInt8.self).baseAddress, text.baseAddress, Int32(text.count))
        }
        guard count == 81 else { throw invalid(path, "contains a line that is not 80 bytes in Base64") }
        return block.withBytes { SecretBytes(copying: $0.prefix(80)) }
    }

    private static func invalid(_ path: String, _ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "the ticket key file \"\(path.printable)\" \(complaint)", operation: "TLSTicketKeyFile")
    }
}
