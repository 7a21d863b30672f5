// Article: delegate
import AsyncSockets
import Foundation

/// Sends everything back. A client that does not read is not served.
final class Echo: AsyncSocketDelegate {
    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        socket.write(data, withTimeout: 30)
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {
        socket.readData(withTimeout: 60)
    }
}
// Article: end
