// Article: delegate
import AsyncSockets
import Foundation

/// Echoes everything. Reads more only after the echo is written, so a client that does not read cannot use up
/// memory.
final class Echo: AsyncSocketDelegate {
    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        socket.write(data, withTimeout: 30)
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        socket.readData(withTimeout: 60)
    }
}
// Article: end
