internal import AsyncSockets
internal import Foundation

/// The current core, and state that the core does not track.
struct DatagramFacts {
    private(set) var core: AsyncUDPSocket
    /// Replaced cores that have not reported their close yet.
    private var retired: [AsyncUDPSocket] = []
    /// Whether the close of `core` has been delivered, or will not be delivered because there was no delegate
    /// queue.
    private var isEndOver = false
    var userData: Any?
    var maxReceive4 = UInt16.max
    var maxReceive6 = UInt32(UInt16.max)
    /// The size of the send buffer, or `nil` for the kernel's default.
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

    /// Records that the close of a core was delivered. Returns the core if it was retired, so that the caller
    /// can release it outside the lock.
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
        // Safe, because the block is called only on its queue.
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

/// An object that a receive filter attached to a datagram. It moves from the filter's queue to the delegate's
/// queue, and the filter does not retain it.
final class FilterContext: Sendable {
    nonisolated(unsafe) let object: AnyObject?

    init(_ object: AnyObject?) {
        self.object = object
    }
}
