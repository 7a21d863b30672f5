import AsyncSockets
import Dispatch
import Foundation

/// A client's connection, and ours to the target. It passes the bytes of each side on to the other, and the
/// end of each stream.
///
/// Each direction has one piece of at most 64 KiB under way. It reads the next one when the other side's
/// kernel has taken this one.
final class Pair: AsyncSocketDelegate {
    /// After so many seconds without a byte in either direction both connections end.
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

    /// The client speaks TLS: only now does it get a connection to the target.
    func socketDidSecure(_ socket: AsyncSocket) {
        do {
            try target.connect(toHost: targetHost, onPort: targetPort, withTimeout: 10)
            read(from: client)
            read(from: target)
        } catch {
            fail("connect", error)
        }
    }

    // MARK: - Passing bytes on

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        lastMove = .now
        other(than: socket).write(data, withTimeout: Self.idleSeconds)
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        lastMove = .now
        read(from: other(than: socket))
    }

    /// One side has sent its last byte, and may still receive.
    func socketDidCloseReadStream(_ socket: AsyncSocket) {
        other(than: socket).closeWriteStream()
    }

    /// A side may be silent as long as the other one is not.
    func socket(
        _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
    ) -> TimeInterval {
        Self.idleSeconds - (ContinuousClock.now - lastMove) / .seconds(1)
    }

    // MARK: - The end

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
