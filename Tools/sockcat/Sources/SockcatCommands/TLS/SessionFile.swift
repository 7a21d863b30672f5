internal import AsyncSockets
internal import Foundation
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
        for line in try LocalFile.text(path).split(separator: "\n") {
            let parts = line.split(separator: " ")
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
        let temporary = "\(path).\(getpid())"
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw Failure.file(temporary, "create", errno: errno) }
        let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        do {
            try file.write(contentsOf: Data(text.utf8))
        } catch {
            unlink(temporary)
            throw Failure("cannot write \"\(temporary)\": \(error.localizedDescription)", status: .fileFailed)
        }
        guard rename(temporary, path) == 0 else { throw Failure.file(path, "replace", errno: errno) }
    }
}
