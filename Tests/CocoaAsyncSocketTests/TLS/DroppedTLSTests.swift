import CocoaClients
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import CocoaAsyncSocket

@Suite(.timeLimit(.patient)) struct DroppedTLSTests {
    /// Another thread is about to disconnect, and has only announced it, when TLS is started and a secret is
    /// written.
    @Test func nothingLeavesBehindADroppedStartTLS() async throws {
        let wire = try await Wire.make()
        wire.server.readData(withTimeout: -1, tag: 1)
        wire.client.core.connection?.record.withLock { ($0.claims.isDisconnected, $0.claims.closing) = (true, []) }
        wire.client.startTLS(try TestSettings.client())
        wire.client.write(Data("secret".utf8), withTimeout: -1, tag: 1)
        wire.client.disconnect()
        _ = try await wire.atServer.end()
        #expect(!wire.atServer.lines.contains("read 1: secret"))
    }
}
