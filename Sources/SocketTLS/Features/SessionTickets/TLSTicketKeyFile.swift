internal import COpenSSL
internal import SocketBuffers

/// Keys of session tickets from a file, which several processes can share; it is read again when it changes.
///
/// The file has three lines: the key of the time before, the current one, and the next one. Each is 80 bytes
/// in Base64 (`openssl rand -base64 80 | tr -d '\n'`), as for HAProxy's `tls-ticket-keys`. The second line
/// encrypts; all decrypt. To rotate, remove the first line and append a new one, at most once in each
/// lifetime of a ticket, which is an hour. Replace the file by rename(2), so that half of it is never read.
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

    /// How long a look at the file counts.
    private static let interval = Duration.seconds(1)

    /// Reads the file.
    ///
    /// - Throws: `invalidSettings` when it cannot be read, or does not have three different keys.
    public init(path: String) throws(TLSError) {
        self.path = path
        let stamp = FileStamp(path: path)
        state = Locked(State(keys: try Self.read(path), stamp: stamp, lastLook: .now))
    }

    /// The keys of the last good file. At most once a second it looks whether the file has changed. Then
    /// another task reads it, and the keys count when it is done.
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

    /// Why the latest file is not in use; nil if it is. While a file is bad, the keys of the last good one
    /// stay.
    public var failure: TLSError? { state.withLock { $0.failure } }

    /// Looks at the file now, and reads it if it has changed, or if it could not be read before. Blocks.
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
            guard lines.count == 3 else { throw invalid(path, "has \(lines.count) lines instead of three") }
            var keys: [TLSTicketKey] = []
            for line in lines { keys.append(try TLSTicketKey(decoded(line, path))) }
            return keys
        }
        guard Set(keys.map(\.name)).count == 3 else { throw invalid(path, "names a key twice") }
        return TLSTicketKeys(current: keys[1], others: [keys[0], keys[2]])
    }

    private static func decoded(_ line: Slice<UnsafeRawBufferPointer>, _ path: String) throws(TLSError) -> SecretBytes {
        // 80 bytes are 108 characters, of which the last one fills up.
        guard line.count == 108, line.last == UInt8(ascii: "="), line.dropLast().last != UInt8(ascii: "=") else {
            throw invalid(path, "has a line that is not 80 bytes in Base64")
        }
        let block = SecretBytes(count: 81)
        let text = UnsafeRawBufferPointer(rebasing: line).assumingMemoryBound(to: UInt8.self)
        let count = withExtendedLifetime(block) {
            EVP_DecodeBlock(
                block.writableBytes.assumingMemoryBound(to: UInt8.self).baseAddress, text.baseAddress, Int32(text.count))
        }
        guard count == 81 else { throw invalid(path, "has a line that is not 80 bytes in Base64") }
        return block.withBytes { SecretBytes(copying: $0.prefix(80)) }
    }

    private static func invalid(_ path: String, _ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "The file of ticket keys \"\(path.printable)\" \(complaint).", operation: "TLSTicketKeyFile")
    }
}
