import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// Returns a socket for tasks connected to a scripted peer, optionally with TLS.
func connectedSocket(_ steps: [ScriptedPeer.Step], isSecure: Bool = false) async throws -> (AsyncSocket, ScriptedPeer) {
    let start: [ScriptedPeer.Step] = isSecure ? [.startTLS(try TestCertificates.server())] : []
    let peer = try ScriptedPeer.listening(start + steps, timeout: .patient)
    let socket = AsyncSocket()
    try await socket.connect(to: "127.0.0.1", port: peer.port, tls: isSecure ? TestCertificates.client() : nil)
    return (socket, peer)
}

/// Calls `body`. The peer disconnects when the test's time is over, so that `body` cannot wait forever.
nonisolated(nonsending) func untilStopped<Value>(
    _ peer: ScriptedPeer, _ body: nonisolated(nonsending) () async throws -> Value
) async throws -> Value {
    let watch = Task {
        _ = try? await eventually("it ends") { false }
        if !Task.isCancelled { peer.stop() }
    }
    defer { watch.cancel() }
    return try await body()
}

extension [ScriptedPeer.Step] {
    /// The peer closes its write side.
    static func orderlyEnd(isSecure: Bool) -> Self {
        isSecure ? [.sendCloseNotify, .finish] : [.finish]
    }
}

/// Two connected sockets for tasks.
struct SocketPair {
    let client = AsyncSocket()
    let server: AsyncSocket

    /// Connects with one version of TLS.
    init(tls version: TLSProtocolVersion) async throws {
        try await self.init(securedBy: TestCertificates.client().only(version))
    }

    init(isSecure: Bool = false) async throws {
        try await self.init(securedBy: isSecure ? TestCertificates.client() : nil)
    }

    private init(securedBy settings: TLSClientSettings?) async throws {
        let listener = try RawSocket.listening()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        server = try AsyncSocket(adopting: listener.accepted().duplicate())
        guard let settings else { return }
        async let atServer: TLSSession = server.startTLS(settings: TestCertificates.server())
        try await client.startTLS(settings: settings)
        _ = try await atServer
    }
}

/// Returns the result of an operation.
nonisolated(nonsending) func outcome<Value>(
    of operation: nonisolated(nonsending) () async throws -> Value
) async -> Outcome {
    do {
        _ = try await operation()
        return .served
    } catch {
        return Outcome(error)
    }
}

extension Task where Failure == any Error {
    /// The result of the task, which must end by itself.
    var outcome: Outcome {
        get async {
            switch await result {
            case .success: .served
            case .failure(let error): Outcome(error)
            }
        }
    }
}

extension AsyncSocket {
    /// Returns when a read is waiting.
    func readWaits() async throws {
        try await eventually("a read waits") { readProgress != nil }
    }
}
