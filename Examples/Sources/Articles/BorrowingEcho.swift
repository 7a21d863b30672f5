// Article: borrowed
import AsyncSockets
import Synchronization

/// Echoes everything directly from the receive buffer. Reads more only after the echo is written, so a client
/// that does not read cannot use up memory.
final class BorrowingEcho: AsyncSocketDelegate, Sendable {
    private let sockets = Mutex<[ObjectIdentifier: AsyncSocket]>([:])

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        sockets.withLock { $0[ObjectIdentifier(newSocket)] = newSocket }
        newSocket.readBytes(withTimeout: 60)
    }

    func socket(_ socket: AsyncSocket, didReadBytes bytes: RawSpan, withTag tag: Int) {
        socket.write(bytes, withTimeout: 30)
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        socket.readBytes(withTimeout: 60)
    }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        sockets.withLock { $0[ObjectIdentifier(socket)] = nil }
    }
}
// Article: end
