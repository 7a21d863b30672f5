internal import AsyncSockets
internal import Foundation
internal import ServerArguments
internal import Synchronization

/// A datagram server for the given `mode`.
final class DatagramService: AsyncUDPSocketDelegate, Sendable {
    private let mode: ServerArguments.Mode
    private let counts = Mutex<[SocketEndpoint: UInt64]>([:])
    private let pattern = Data(BulkPattern.bytes(65_507))

    init(_ mode: ServerArguments.Mode) {
        self.mode = mode
    }

    func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?) {
        let (data, sender) = (datagram.data, datagram.sender)
        switch mode {
        case .udpReceive:
            let count = counts.withLock { counts in
                counts[sender, default: 0] += 1
                return counts[sender] ?? 0
            }
            if data.first == 1 { socket.send(Data(number: count), toAddress: sender, withTimeout: -1, tag: 0) }
        case .udpSource:
            guard data.count == 16, (0...65_507).contains(data.number(at: 8)) else { return }
            let bytes = pattern[..<data.number(at: 8)]
            for _ in 0..<data.number(at: 0) { socket.send(bytes, toAddress: sender, withTimeout: -1, tag: 0) }
        default:
            socket.send(data, toAddress: sender, withTimeout: -1, tag: 0)
        }
    }
}
