internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc
internal import Synchronization

/// The sessions of a client in a file, so that the next run of the program can resume them.
///
/// Sessions are read once and written once, because a store must not block.
final class SessionFile: TLSSessionStore {
    private let path: String
    private let sessions = Mutex<[String: TLSResumableSession]>([:])
    private let hasChanged = Atomic(false)

    /// Reads the sessions of a file. A file that does not exist has no sessions.
    init(path: String) throws {
        self.path = path
        guard FileManager.default.fileExists(atPath: path) else { return }
        for line in TextLines(try LocalFile.text(path)) where !line.trimmed.isEmpty {
            let parts = line.trimmed.split(separator: " ")
            guard parts.count == 2, let bytes = Data(base64Encoded: String(parts[1])) else {
                throw Failure(
                    "\"\(path)\" is not a session file", advice: "pass another file with --resume", status: .fileFailed)
            }
            // A session that another version of OpenSSL or of the library wrote is dropped.
            guard let session = try? TLSResumableSession(bytes: Array(bytes)), session.end > Date() else { continue }
            sessions.withLock { $0[String(parts[0])] = session }
        }
    }

    func store(_ session: TLSResumableSession, for key: TLSSessionStoreKey) {
        hasChanged.store(true, ordering: .relaxed)
        sessions.withLock { $0[Hexadecimal.text(key.digest)] = session }
    }

    func take(for key: TLSSessionStoreKey) -> TLSResumableSession? {
        hasChanged.store(true, ordering: .relaxed)
        return sessions.withLock { $0.removeValue(forKey: Hexadecimal.text(key.digest)) }
    }

    /// Replaces the file if sessions have changed. Only its owner may read it, because the sessions are
    /// secret.
    func save() throws {
        guard hasChanged.load(ordering: .relaxed) else { return }
        let text = sessions.withLock { sessions in
            sessions.map { "\($0) \(Data($1.bytes).base64EncodedString())\n" }.sorted().joined()
        }
        try FileReplacement.write(Data(text.utf8), to: path, mode: 0o600)
    }
}
