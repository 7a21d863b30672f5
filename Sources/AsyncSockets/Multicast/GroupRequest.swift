internal import SocketCore

/// A request to join or leave a multicast group, read from text.
struct GroupRequest {
    private let operation: AsyncSocketError.Operation
    private let text: String
    private let membership: MulticastMembership

    init(
        _ operation: AsyncSocketError.Operation, _ group: String, _ interface: String?, _ source: String?
    ) throws(AsyncSocketError) {
        self.operation = operation
        text = group
        let groupAddress = try Self.address(group, operation)
        let sourceAddress = try source.map { (text) throws(AsyncSocketError) in try Self.address(text, operation) }
        membership = MulticastMembership(
            of: groupAddress, from: sourceAddress,
            on: try interface.map { (text) throws(AsyncSocketError) in try Self.index(of: text, operation) } ?? .any)
    }

    /// Changes the membership with the descriptor for its IP version or, if that is bound to the address
    /// of one interface, with a descriptor in `receivers`.
    func apply(
        to descriptors: [BoundDescriptor], _ receivers: inout GroupReceivers, _ setup: GroupReceivers.Setup
    ) throws(AsyncSocketError) {
        guard let bound = descriptors.first(where: { $0.descriptor.has(membership.group.family) }) else {
            let version = AsyncSocketError.families(of: [membership.group])
            throw .badConfiguration(
                operation,
                "the group \"\(text)\" requires \(version), which the socket does not use: bind to an \(version) address")
        }
        do throws(SystemError) {
            try apply(to: bound.descriptor, boundTo: bound.onlyAddress, &receivers, setup)
        } catch {
            throw AsyncSocketError(datagram: error, operation)
        }
    }

    private func apply(
        to main: DatagramDescriptor, boundTo address: SocketEndpoint?, _ receivers: inout GroupReceivers,
        _ setup: GroupReceivers.Setup
    ) throws(SystemError) {
        switch (operation, address) {
        case (.leave, nil): try main.leave(membership)
        case (.leave, let address?):
            // `connect` removes all receivers.
            if try !receivers.leave(membership(on: address), for: main) { try main.leave(membership) }
        case (_, nil): try main.join(membership)
        case (_, let address?): try receivers.join(membership(on: address), for: main, setup)
        }
    }

    /// The membership on the interface to which the socket is bound, unless the request names an interface.
    private func membership(on address: SocketEndpoint) -> MulticastMembership {
        guard membership.interface == .any, let host = address.unmapped.host, let index = try? InterfaceIndex(host) else {
            return membership
        }
        return MulticastMembership(of: membership.group, from: membership.source, on: index)
    }

    private static func address(
        _ text: String, _ operation: AsyncSocketError.Operation
    ) throws(AsyncSocketError) -> SocketEndpoint {
        guard let address = SocketEndpoint(literal: text, port: 0) else {
            throw .badParameter(operation, "\"\(text)\" is not an IP address")
        }
        return address
    }

    static func index(
        of interface: String, _ operation: AsyncSocketError.Operation
    ) throws(AsyncSocketError) -> InterfaceIndex {
        do throws(InterfaceError) {
            return try InterfaceIndex(interface)
        } catch {
            throw AsyncSocketError(error, operation: operation)
        }
    }
}

extension DatagramDescriptor {
    func has(_ family: SocketEndpoint.Family) -> Bool {
        switch families {
        case .ipv4: family == .ipv4
        case .ipv6: family == .ipv6
        case .both: family.isInternet
        }
    }
}
