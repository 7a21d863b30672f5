internal import Dispatch
internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// The threads on which steps of handshakes run that take long: one for each processor, and none while there
/// is nothing to do. The event loops stay free for the other connections.
enum HandshakeWorkers {
    private static let queues = (0..<EventLoop.usableProcessors).map { number in
        DispatchQueue(label: "AsyncSockets.handshakes.\(number)")
    }
    private static let next = Atomic(0)

    /// Does `work`, in turn with that of other connections, and calls `completion` on its thread.
    static func perform(_ work: HandshakeWork, completion: @escaping @Sendable () -> Void) {
        let number = next.wrappingAdd(1, ordering: .relaxed).oldValue
        queues[Int(UInt(bitPattern: number) % UInt(queues.count))].async {
            work.perform()
            completion()
        }
    }
}
