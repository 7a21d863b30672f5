internal import AsyncSockets
internal import Foundation

/// Receives a file that is larger than the free disk space.
enum DiskProbe {
    static func run(_ folder: String) throws {
        let outcome = Mailbox<Result<Void, any Error>>()
        Task {
            do {
                try await receive(in: folder)
                outcome.put(.success(()))
            } catch {
                outcome.put(.failure(error))
            }
        }
        try outcome.next().get()
        print("a full disk is named, and nothing is left on it")
    }

    private static func receive(in folder: String) async throws {
        let (path, count) = (folder + "/file", 16 << 20)
        try Data("old".utf8).write(to: URL(filePath: path))
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let serving = Task {
            try await listener.run(onError: { _, _ in }) { try await $0.write([UInt8](repeating: 1, count: count)) }
        }
        defer { serving.cancel() }
        try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { socket in
            do {
                try await socket.readToFile(path, exactly: count)
                throw ProbeFailure(description: "the file was received")
            } catch let error as AsyncSocketError {
                guard error.code == .system, error.errno == ENOSPC, error.message.hasPrefix("\"\(path)\": no space left"),
                    error.message.contains(" of \(count) bytes")
                else { throw ProbeFailure(description: "\(error)") }
            }
            socket.disconnect()
        }
        let left = try FileManager.default.contentsOfDirectory(atPath: folder)
        guard left == ["file"], try Data(contentsOf: URL(filePath: path)) == Data("old".utf8) else {
            throw ProbeFailure(description: "\(left)")
        }
    }
}
