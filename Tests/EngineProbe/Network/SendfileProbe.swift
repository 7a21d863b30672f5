internal import AsyncSockets
internal import CSeccomp
internal import Foundation

/// Sends a file although sendfile(2) fails, as on some file systems.
enum SendfileProbe {
    /// - Parameter number: The `errno` of sendfile.
    static func run(_ number: CInt) throws {
        let path = FileManager.default.temporaryDirectory.appending(path: "sendfile-\(getpid())").path
        let content = Data((0..<1_000_003).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        try content.write(to: URL(filePath: path))
        defer { unlink(path) }
        try RefusalProbe.refuse(CSeccomp_sendfile, number)
        let received = Mailbox<Result<Data, any Error>>()
        Task {
            do {
                received.put(.success(try await exchange(path)))
            } catch {
                received.put(.failure(error))
            }
        }
        let data = try received.next().get()
        guard data == content.dropFirst(3).dropLast(5) else { throw ProbeFailure(description: "\(data.count) other bytes") }
        print("the file arrived complete")
    }

    private static func exchange(_ path: String) async throws -> Data {
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let serving = Task {
            try await listener.run(onError: { error, _ in print("failed: \(error)") }) { socket in
                try await socket.write(contentsOfFile: path, offset: 3, length: 1_000_003 - 8)
            }
        }
        defer { serving.cancel() }
        return try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort) { socket in
            try await socket.readToEnd()
        }
    }
}
