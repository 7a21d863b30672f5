internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// The state of a UDP socket that any thread may read and change, protected by one lock. It includes the
/// descriptors, which are opened and configured on the caller's thread.
///
/// A descriptor is removed from the record before it is closed, so a call under the lock never affects a
/// different file with the same descriptor number.
struct DatagramRecord {
    private struct Entry {
        let bound: BoundDescriptor
        var drops = WrappingCount()

        var descriptor: DatagramDescriptor { bound.descriptor }

        mutating func countDrops() -> Int {
            if let count = descriptor.droppedCount { drops.note(count) }
            return drops.total
        }
    }

    /// Empty, or one descriptor for each family in use.
    private var entries: [Entry] = []
    /// Descriptors that are neither bound nor connected yet. The loop does not watch them.
    private(set) var unbound: [DatagramDescriptor] = []
    var groupReceivers = GroupReceivers()
    var options = SocketOptionSet()
    var peer: SocketEndpoint?
    /// The local address of a socket that shares its listener's descriptor.
    private(set) var sharedAddress: InternetAddress?
    /// Whether the socket shares its listener's descriptor.
    private(set) var isShared = false
    /// Whether `disconnect()` was called or the socket has closed.
    var isClosed = false
    /// The error that closed the socket, or `nil` if the program closed it.
    var end: AsyncSocketError?
    /// Whether `startDTLS` was called. It can be called only once per socket.
    var isUpgradeClaimed = false
    /// The host and port that the caller connects to, or `nil` if the caller passed an address.
    private(set) var endpoint: HostQuery?
    /// The result of the handshake for callers, or `nil` until the handshake is complete.
    var security: DatagramSecurity?
    private var lastAddresses: [SocketEndpoint] = []
    private var lastDropCount = 0
    /// The number of the `connect` call that owns the socket.
    private var claim: Int?
    private var claimCount = 0
    /// The claim of a socket that has a peer without a call to `connect`: its descriptor was connected by
    /// other code, or it serves a listener's peer.
    private(set) var adoptedClaim = 0
    /// Whether `dissolveAssociation()` was called and has not taken effect yet.
    private var isLettingGo = false

    var descriptors: [DatagramDescriptor] { entries.map(\.descriptor) }
    var boundDescriptors: [BoundDescriptor] { entries.map(\.bound) }

    var isOpen: Bool { !entries.isEmpty || isShared }

    var isInUse: Bool { !isClosed && (isOpen || isConnectClaimed) }

    /// Whether the socket is in use or has unbound descriptors (`kDidCreateSockets`).
    var isCreated: Bool { isInUse || !isClosed && !unbound.isEmpty }

    /// Adds descriptors that are bound or connected.
    mutating func add(_ opened: [DatagramDescriptor]) {
        unbound.removeAll { descriptor in opened.contains { $0.families == descriptor.families } }
        entries += opened.map { Entry(bound: BoundDescriptor($0)) }
    }

    /// Opens a descriptor for each family without binding it, unless the socket is created or closed. Skips a
    /// missing family, unless it is the only one.
    mutating func create(_ families: [SocketEndpoint.Family], _ reception: DatagramReception) throws(SystemError) {
        guard !isCreated, !isClosed else { return }
        var refusal: SystemError?
        for family in families {
            do throws(SystemError) {
                unbound.append(try DatagramBinding.open(family, reception, options))
            } catch {
                guard error.isFamilyMissing else {
                    unbound = []
                    throw error
                }
                refusal = error
            }
        }
        if unbound.isEmpty, let refusal { throw refusal }
    }

    /// Connects the unbound descriptor of the address's family, or a new descriptor, and adds it. If this
    /// throws, the descriptor stays unbound.
    mutating func connect(to address: SocketEndpoint, _ reception: DatagramReception) throws(SystemError) {
        let descriptor = try DatagramBinding.descriptor(for: address.family, among: unbound, reception, options)
        do throws(SystemError) {
            try descriptor.connect(to: address)
        } catch {
            // The kernel may have bound it to a port.
            try descriptor.release()
            throw error
        }
        add([descriptor])
    }

    /// Removes all descriptors, or all except the socket's own descriptors of `family`. The caller closes
    /// them.
    mutating func withdraw(keeping family: DatagramDescriptor.Families? = nil) -> [DatagramDescriptor] {
        if family == nil { lastAddresses = localAddresses }
        var withdrawn = groupReceivers.withdraw() + unbound
        unbound = []
        for index in entries.indices where entries[index].descriptor.families != family {
            lastDropCount += entries[index].countDrops()
            withdrawn.append(entries[index].descriptor)
        }
        entries.removeAll { $0.descriptor.families != family }
        return withdrawn
    }

    /// Sets an option on all descriptors, and stores it for descriptors that are opened later.
    mutating func set<Value>(
        _ option: SocketOptionKey<Value>, to value: Value, _ reception: DatagramReception
    ) throws(SystemError) {
        let earlier = options
        try options.set(option, to: value)
        do throws(SystemError) {
            if option.name == SocketOptionKey.broadcast.name { try updateBroadcasts(reception) }
            for descriptor in descriptors + unbound + groupReceivers.descriptors { try descriptor.set(option, to: value) }
        } catch {
            options = earlier
            throw error
        }
    }

    /// Opens or removes the receivers for broadcasts, according to the option `.broadcast`.
    mutating func updateBroadcasts(_ reception: DatagramReception) throws(SystemError) {
        let setup = GroupReceivers.Setup(reception: reception, options: options)
        try groupReceivers.setBroadcasts(options.value(of: .broadcast) == true, for: boundDescriptors, setup)
    }

    /// The local addresses. The kernel is queried each time, because they are rarely needed.
    var localAddresses: [SocketEndpoint] {
        if let sharedAddress { return [sharedAddress.socketAddress] }
        return entries.isEmpty ? lastAddresses : entries.compactMap(\.descriptor.localAddress)
    }

    /// The number of datagrams that the kernel dropped because its buffer was full or their checksum was
    /// wrong.
    mutating func countDrops() -> Int {
        entries.indices.reduce(lastDropCount + groupReceivers.countDrops()) { $0 + entries[$1].countDrops() }
    }

    // MARK: - Peer

    /// Whether `connect` was called and has not failed.
    var isConnectClaimed: Bool { claim != nil }

    /// Returns the number of a new `connect` call, or `nil` if another call owns the socket. The call need
    /// not wait for a pending `dissolveAssociation()`, because the turn handles that first.
    ///
    /// - Parameter host: The host that the caller connects to, or `nil` if the caller passed an address.
    mutating func claimConnect(to host: HostQuery? = nil) -> Int? {
        guard claim == nil || isLettingGo, !isClosed else { return nil }
        claimCount += 1
        (claim, isLettingGo, endpoint) = (claimCount, false, host)
        return claim
    }

    /// Records the peer of a descriptor that other code has connected.
    mutating func notePeer() {
        peer = entries.first?.descriptor.remoteAddress
        if peer != nil { adoptedClaim = claimConnect() ?? 0 }
    }

    /// Marks the socket as serving a listener's peer.
    mutating func share(_ address: SocketEndpoint?, with peer: SocketEndpoint) {
        (self.peer, sharedAddress, isShared) = (peer, address.map { InternetAddress($0) }, address != nil)
        adoptedClaim = claimConnect() ?? 0
    }

    /// Notes that `dissolveAssociation()` was called. Returns the claim of the `connect` call that must be
    /// undone, if any.
    mutating func letGo() -> Int? {
        isLettingGo = claim != nil
        return claim
    }

    /// Called inside the turn when the `connect` call with this number has failed, or its peer was removed. A
    /// later call may already own the socket.
    mutating func endClaim(_ number: Int) {
        peer = nil
        if claim == number { (claim, isLettingGo) = (nil, false) }
    }

    /// Called inside the turn when disconnecting from the peer of this `connect` call has failed.
    mutating func keepClaim(_ number: Int) {
        if claim == number { isLettingGo = false }
    }
}

/// The result of a handshake, for callers outside the turn.
struct DatagramSecurity {
    let session: CopyOnWrite<TLSSession>?
    let exporter: KeyExporter
}

final class DatagramCounts: Sendable {
    /// Whether `startDTLS` was called. Set on the caller's thread.
    let isUpgradeClaimed = Atomic(false)
    let rateLimited = Atomic(0)
    let pendingSendBytes = Atomic(0)
    /// The number of datagrams dropped because the mailbox of a listener's peer had no room.
    let mailboxDrops = Atomic(0)
    let droppedRecords = Atomic(0)
    /// The maximum size of a datagram on a secure socket; 0 until the socket is secure.
    let secureSendLimit = Atomic(0)
}

/// The local addresses for a socket, and the setup of its descriptors.
struct DatagramBinding {
    /// At most one address per family, IPv4 first.
    let addresses: [SocketEndpoint]
    let reception: DatagramReception

    /// The maximum number of ports to try when a port must be free in both families.
    private static let attempts = 32

    /// - Parameter unbound: The descriptors to bind. For other families, new descriptors are opened.
    func open(
        with options: SocketOptionSet, binding unbound: [DatagramDescriptor] = []
    ) throws(SystemError) -> [DatagramDescriptor] {
        var lastError = SystemError("bind", errno: 0, detail: "no address to bind to")
        for _ in 0..<Self.attempts {
            do throws(SystemError) {
                return try openOnce(with: options, binding: unbound)
            } catch {
                lastError = error
            }
            guard addresses.count > 1, addresses[0].port == 0, lastError.isAddressInUse else { break }
            for descriptor in unbound { try descriptor.release() }
        }
        throw lastError
    }

    /// Skips an address of a missing family, unless it is the only one.
    private func openOnce(
        with options: SocketOptionSet, binding unbound: [DatagramDescriptor]
    ) throws(SystemError) -> [DatagramDescriptor] {
        var opened: [DatagramDescriptor] = []
        var refusal: SystemError?
        for address in addresses {
            do throws(SystemError) {
                let port = opened.first?.localAddress?.port ?? 0
                let descriptor = try Self.descriptor(for: address.family, among: unbound, reception, options)
                try descriptor.bind(to: address.port == 0 ? address.withPort(port) : address)
                opened.append(descriptor)
            } catch {
                guard error.isFamilyMissing else { throw error }
                refusal = error
            }
        }
        if opened.isEmpty, let refusal { throw refusal }
        return opened
    }

    /// Returns the unbound descriptor of a family, or opens one.
    static func descriptor(
        for family: SocketEndpoint.Family, among unbound: [DatagramDescriptor], _ reception: DatagramReception,
        _ options: SocketOptionSet
    ) throws(SystemError) -> DatagramDescriptor {
        if let descriptor = unbound.first(where: { $0.has(family) }) { return descriptor }
        return try open(family, reception, options)
    }

    /// Opens a descriptor that is not bound yet.
    static func open(
        _ family: SocketEndpoint.Family, _ reception: DatagramReception, _ options: SocketOptionSet
    ) throws(SystemError) -> DatagramDescriptor {
        let descriptor = try DatagramDescriptor(opening: family == .ipv6 ? .ipv6 : .ipv4, options: options)
        _ = try descriptor.prepareReception(reception)
        return descriptor
    }
}
