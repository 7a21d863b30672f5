import AsyncSockets
import Dispatch
import Foundation

/// A client's connection and the proxy's connection to the target. Forwards bytes in both directions, and the
/// end of each stream.
///
/// Each direction buffers at most 64 KiB. It reads again only after the previous bytes are written to the
/// other side.
final class Pair: AsyncSocketDelegate {
    /// Both connections are closed after this long without a byte in either direction.
    private static let idleSeconds = 60.0

    private let client: AsyncSocket
    private let target = AsyncSocket()
    private let targetHost: String
    private let targetPort: UInt16
    private let onEnd: (Pair) -> Void
    private var lastMove = ContinuousClock.now

    init(_ client: AsyncSocket, targetHost: String, targetPort: UInt16, onEnd: @escaping (Pair) -> Void) {
        self.client = client
        self.targetHost = targetHost
        self.targetPort = targetPort
        self.onEnd = onEnd
    }

    func start(_ settings: TLSServerSettings, on queue: DispatchQueue) {
        target.autoDisconnectOnClosedReadStream = false
        target.setDelegate(self, delegateQueue: queue)
        client.setDelegate(self, delegateQueue: queue)
        do {
            try client.beginTLS(settings: settings)
        } catch {
            fail("startTLS", error)
        }
    }

    /// Connects to the target only after the TLS handshake with the client.
    func socketDidSecure(_ socket: AsyncSocket) {
        do {
            try target.connect(toHost: targetHost, onPort: targetPort, withTimeout: 10)
            read(from: client)
            read(from: target)
        } catch {
            fail("connect", error)
        }
    }

    // MARK: - Forwarding

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        lastMove = .now
        other(than: socket).write(data, withTimeout: Self.idleSeconds)
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        lastMove = .now
        read(from: other(than: socket))
    }

    /// One side has closed its write stream but may still receive.
    func socketDidCloseReadStream(_ socket: AsyncSocket) {
        other(than: socket).closeWriteStream()
    }

    /// A read times out only if both directions are idle.
    func socket(
        _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval {
        Self.idleSeconds - (ContinuousClock.now - lastMove) / .seconds(1)
    }

    // MARK: - Closing

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        if let error, !error.isOrderlyEnd {
            log("\(socket === client ? "client" : "target"): \(error.localizedDescription)")
            other(than: socket).disconnect()
        } else {
            other(than: socket).disconnectAfterWriting()
        }
        if client.isDisconnected, target.isDisconnected { onEnd(self) }
    }

    private func fail(_ operation: String, _ error: any Error) {
        log("\(operation): \(error)")
        client.disconnect()
    }

    private func read(from socket: AsyncSocket) {
        socket.readData(withTimeout: Self.idleSeconds)
    }

    private func other(than socket: AsyncSocket) -> AsyncSocket {
        socket === client ? target : client
    }
}
