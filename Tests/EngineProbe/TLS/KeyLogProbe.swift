internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Dispatch
internal import Foundation
internal import Glibc
internal import SocketBuffers
internal import SocketTLS

/// An invalid key log closes its file only once. A second close could close a file that another thread has
/// opened meanwhile.
enum KeyLogProbe {
    private static let rounds = 5_000

    static func run() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "key-log-\(getpid())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let path = folder.appending(path: "keys").path
        guard FileManager.default.createFile(atPath: path, contents: nil, attributes: [.posixPermissions: 0o644]) else {
            throw ProbeFailure(description: "no file")
        }
        var settings = TLSSettings.client(serverName: "localhost")
        settings.keyLogFile = path
        let (isOver, lost) = (Locked(false), Locked(0))
        let other = Thread {
            while !isOver.withLock({ $0 }) {
                let number = dup(0)
                sched_yield()
                if fcntl(number, F_GETFD) < 0 { lost.withLock { $0 += 1 } }
                close(number)
            }
        }
        other.start()
        defer { isOver.withLock { $0 = true } }
        for _ in 0..<rounds {
            do {
                _ = try TLSContext.context(for: settings.values)
                throw ProbeFailure(description: "a file that others may read was taken")
            } catch is TLSError {}
        }
        guard lost.withLock({ $0 }) == 0 else {
            throw ProbeFailure(description: "\(lost.withLock { $0 }) descriptors of another thread were closed")
        }
    }
}
