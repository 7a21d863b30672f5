internal import AsyncSockets
internal import Foundation

/// The core, and the facts that it does not know.
struct DatagramFacts {
    private(set) var core: AsyncUDPSocket
    /// Cores whose end is on its way.
    private var retired: [AsyncUDPSocket] = []
    /// Whether the close of `core` has been delivered, or needs no delivery for lack of a delegate queue.
    private var isEndOver = false
    var userData: Any?
    var maxReceive4 = UInt16.max
    var maxReceive6 = UInt32(UInt16.max)
    /// Nil: as the kernel has it.
    var maxSend: UInt16?
    var filters = DatagramFilters()

    init(core: AsyncUDPSocket) {
        self.core = core
    }

    /// - Parameter keepsOld: Whether to keep the old core until its close has been delivered.
    mutating func retire(with new: AsyncUDPSocket, keepsOld: Bool) {
        if keepsOld, !isEndOver { retired.append(core) }
        (core, isEndOver) = (new, false)
    }

    /// Notes that the close of a core has been delivered, and returns the core if it is retired. The caller
    /// releases it outside the lock.
    mutating func noteEnd(of socket: AsyncUDPSocket) -> AsyncUDPSocket? {
        if socket === core { isEndOver = true }
        return retired.firstIndex { $0 === socket }.map { retired.remove(at: $0) }
    }

    func limit(of datagram: Datagram) -> Int {
        datagram.sender.family == .ipv4 ? Int(maxReceive4) : Int(clamping: maxReceive6)
    }
}

/// The filters of a socket, which outlive its cores.
struct DatagramFilters {
    var send: (GCDAsyncUdpSocketSendFilterBlock, DispatchQueue)?
    var receive: (GCDAsyncUdpSocketReceiveFilterBlock, DispatchQueue)?

    func apply(to core: AsyncUDPSocket) {
        applySend(to: core)
        applyReceive(to: core)
    }

    private func applySend(to core: AsyncUDPSocket) {
        guard let (block, queue) = send else { return core.setSendFilter(nil) }
        // Only called on its queue.
        nonisolated(unsafe) let filter = block
        core.setSendFilter(on: queue.serialForDelegate) { filter($0, $1.data, $2) }
    }

    private func applyReceive(to core: AsyncUDPSocket) {
        guard let (block, queue) = receive else { return core.setReceiveFilter(nil) }
        nonisolated(unsafe) let filter = block
        core.setReceiveFilter(on: queue.serialForDelegate) { datagram in
            var object: AnyObject?
            guard filter(datagram.data, datagram.sender.data, &object) else { return .drop }
            return .accept(context: FilterContext(object))
        }
    }
}
