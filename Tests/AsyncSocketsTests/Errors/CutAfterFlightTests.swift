import AsyncSocketsTesting
import Foundation
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A TLS server that closes the connection without an alert after the client's last flight, as slapd with
/// GnuTLS does if a client sends no certificate. With TLS 1.3, the client's handshake is complete by then.
@Suite(.timeLimit(.patient)) struct CutAfterFlightTests {
    private static let rounds = 100

    /// Forwards between clients and a server until the client's last flight has arrived, and then closes the
    /// connection.
    private func cut(_ listener: RawSocket, serverPort: UInt16) -> Task<Void, any Error> {
        Task.detached(executorPreference: TestThreads()) {
            for _ in 0..<Self.rounds {
                let client = try listener.accepted()
                let server = try RawSocket.connected(to: .loopback(port: serverPort), waitLimit: .patient)
                try server.send(client.receive())
                while !client.hasInput {
                    if server.hasInput { try client.send(server.receive()) } else { sched_yield() }
                }
                _ = try client.receive()
                // The FIN arrives before the reset that the client's next bytes cause.
                client.finish()
            }
        }
    }

    @Test(.unmodifiedKernel, arguments: Style.allCases)
    func theErrorIsTheSameWhicheverCallNoticesIt(_ style: Style) async throws {
        let server = try SocketListener(address: .loopback(), tls: TestCertificates.server().only(.tls13))
        let serving = Task { try await server.run { _ = try await $0.read() } }
        let listener = try RawSocket.listening(waitLimit: .patient)
        let cutting = cut(listener, serverPort: server.localPort)
        var codes: [String: Int] = [:]
        for _ in 0..<Self.rounds {
            let error = try await style == .delegate ? delegatesError(listener.localPort) : tasksError(listener.localPort)
            codes["\(try #require(error))", default: 0] += 1
        }
        #expect(codes.count == 1 && codes.keys.allSatisfy { $0.contains("truncated") }, "\(codes)")
        try await cutting.value
        await server.close(timeout: .zero)
        try await serving.value
    }

    /// The error of the operation that fails.
    private func tasksError(_ port: UInt16) async throws -> AsyncSocketError? {
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: port, tls: TestCertificates.client())
        return await #expect(throws: AsyncSocketError.self) {
            for _ in 0..<1000 { try await socket.write("request\r\n") }
            _ = try await socket.readLine()
        }
    }

    private func delegatesError(_ port: UInt16) async throws -> AsyncSocketError? {
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: port, withTimeout: .patient)
        try await recorder.connected()
        try socket.beginTLS(settings: TestCertificates.client())
        try await recorder.secured()
        for tag in 0..<1000 { socket.write(Data("request\r\n".utf8), withTimeout: .patient, tag: tag) }
        return try await recorder.disconnected()
    }
}
