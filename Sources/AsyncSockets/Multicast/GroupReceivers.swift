internal import Glibc
internal import SocketCore

/// A descriptor, with the interface address that it is bound to.
struct BoundDescriptor {
    let descriptor: DatagramDescriptor
    /// `nil` if the descriptor is bound to all interfaces, or is not bound. Determined when the descriptor is
    /// opened: the kernel reports another local address while a socket is connected.
    let onlyAddress: SocketEndpoint?

    init(_ descriptor: DatagramDescriptor) {
        self.descriptor = descriptor
        onlyAddress = descriptor.remoteAddress == nil ? descriptor.onlyAddress : nil
    }
}

/// Additional descriptors for a socket that is bound to the address of one interface.
///
/// The kernel delivers to such a socket only datagrams sent to its address. Each multicast group and each
/// broadcast address therefore needs a separate descriptor, bound to the same port. These descriptors
/// only receive.
struct GroupReceivers {
    private struct Receiver {
        let descriptor: DatagramDescriptor
        let address: SocketEndpoint
        /// Empty for a broadcast address.
        var memberships: Set<MulticastMembership>
        var drops = WrappingCount()

        mutating func countDrops() -> Int {
            if let count = descriptor.droppedCount { drops.note(count) }
            return drops.total
        }
    }

    /// The setup that all descriptors share with the socket's own.
    struct Setup {
        let reception: DatagramReception
        let options: SocketOptionSet
    }

    private var receivers: [Receiver] = []
    /// The drops of descriptors that were removed.
    private var lastDropCount = 0

    var descriptors: [DatagramDescriptor] { receivers.map(\.descriptor) }

    func contains(_ descriptor: DatagramDescriptor) -> Bool {
        receivers.contains { $0.descriptor.socket === descriptor.socket }
    }

    // MARK: - Groups

    /// Joins a group for a socket that is bound to one address.
    mutating func join(
        _ membership: MulticastMembership, for main: DatagramDescriptor, _ setup: Setup
    ) throws(SystemError) {
        let address = membership.address(withPort: main.localAddress?.port ?? 0)
        if let index = receivers.firstIndex(where: { $0.address == address }) {
            try receivers[index].descriptor.join(membership)
            receivers[index].memberships.insert(membership)
            return
        }
        let descriptor = try main.receiver(at: address, setup.reception, setup.options)
        do throws(SystemError) {
            try descriptor.join(membership)
        } catch {
            descriptor.socket.close()
            throw error
        }
        receivers.append(Receiver(descriptor: descriptor, address: address, memberships: [membership]))
    }

    /// Cancels a membership. Removes the group's descriptor with its last membership.
    ///
    /// - Returns: Whether one of the receivers had joined the group's address.
    mutating func leave(_ membership: MulticastMembership, for main: DatagramDescriptor) throws(SystemError) -> Bool {
        let address = membership.address(withPort: main.localAddress?.port ?? 0)
        guard let index = receivers.firstIndex(where: { $0.address == address }) else { return false }
        try receivers[index].descriptor.leave(membership)
        receivers[index].memberships.remove(membership)
        if receivers[index].memberships.isEmpty { remove { $0.address == address } }
        return true
    }

    private mutating func remove(where isRemoved: (Receiver) -> Bool) {
        for index in receivers.indices where isRemoved(receivers[index]) { lastDropCount += receivers[index].countDrops() }
        receivers.removeAll(where: isRemoved)
    }

    /// The number of datagrams that the kernel dropped.
    mutating func countDrops() -> Int {
        receivers.indices.reduce(lastDropCount) { $0 + receivers[$1].countDrops() }
    }

    // MARK: - Broadcasts

    /// Opens or removes the receivers for broadcasts to the networks of the bound addresses.
    mutating func setBroadcasts(_ isOn: Bool, for mains: [BoundDescriptor], _ setup: Setup) throws(SystemError) {
        guard isOn else { return remove { $0.memberships.isEmpty } }
        guard !receivers.contains(where: \.memberships.isEmpty) else { return }
        var opened: [Receiver] = []
        for main in mains {
            guard let own = main.onlyAddress?.unmapped, let (device, broadcast) = try Self.network(of: own) else { continue }
            // A directed broadcast address identifies one network. 255.255.255.255 is the same on every
            // interface, so its receiver is also bound to the device.
            let limited = SocketEndpoint(literal: "255.255.255.255", port: own.port ?? 0)
            for case (let address?, let device) in [(broadcast, nil), (limited, device)] {
                let descriptor = try main.descriptor.broadcastReceiver(at: address, on: device, setup)
                if let descriptor { opened.append(Receiver(descriptor: descriptor, address: address, memberships: [])) }
            }
        }
        receivers += opened
    }

    private static func network(of address: SocketEndpoint) throws(SystemError) -> (String, SocketEndpoint?)? {
        do throws(InterfaceError) {
            return try LocalInterface.broadcast(for: address)
        } catch {
            throw error.cause ?? SystemError("getifaddrs", errno: 0, detail: error.message)
        }
    }

    /// Removes all descriptors. The caller closes them.
    mutating func withdraw() -> [DatagramDescriptor] {
        let withdrawn = descriptors
        remove { _ in true }
        return withdrawn
    }
}

extension DatagramDescriptor {
    /// Returns `nil` if the process lacks the permission to bind to a device (before Linux 5.7).
    fileprivate func broadcastReceiver(
        at address: SocketEndpoint, on device: String?, _ setup: GroupReceivers.Setup
    ) throws(SystemError) -> DatagramDescriptor? {
        do throws(SystemError) {
            return try receiver(at: address, on: device, setup.reception, setup.options)
        } catch {
            guard device != nil, error.errno == EPERM else { throw error }
            return nil
        }
    }
}
