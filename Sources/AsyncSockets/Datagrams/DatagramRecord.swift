internal import SocketCore
internal import SocketTLS
internal import Synchronization

/// The state of a UDP socket that anyone may ask and change, behind one lock: its descriptors, which are
/// opened and set up on the thread of the caller.
///
/// A descriptor leaves before it is closed, so that a call under the lock reaches no other file.
struct DatagramRecord {
    private struct Entry {
        let descriptor: DatagramDescriptor
        var drops = WrappingCount()

        mutating func countDrops() -> Int {
            if let count = descriptor.droppedCount { drops.note(count) }
            return drops.total
        }
    }

    /// None, one, or one of each family.
    private var entries: [Entry] = []
    /// Set on every new descriptor.
    var options = SocketOptionSet()
    var peer: SocketAddress?
    /// The local address of a listener's peer, which has no descriptor of its own.
    private(set) var sharedAddress: InternetAddress?
    /// It is the socket of a listener's peer.
    private var isShared = false
    /// `close()` was called, or it has ended.
    var isClosed = false
    /// Why it has ended by itself.
    var end: AsyncSocketError?
    /// `startDTLS` was called: a socket allows that once.
    var isUpgradeClaimed = false
    /// The host that the caller connects to, with the port; nil for an address.
    private(set) var endpoint: HostQuery?
    /// Facts about DTLS, for callers: nil before the handshake is complete.
    var security: DatagramSecurity?
    private var lastAddresses: [SocketAddress] = []
    private var lastDropCount = 0
    /// Of the call of `connect` that has the socket.
    private var claim: Int?
    private var claimCount = 0
    /// Of a descriptor that others have connected, and of the socket of a listener's peer.
    private(set) var adoptedClaim = 0
    /// `disconnect()` was called, and has not happened yet.
    private var isLettingGo = false

    var descriptors: [DatagramDescriptor] { entries.map(\.descriptor) }

    var isOpen: Bool { !entries.isEmpty || isShared }

    /// It may send and receive.
    var isInUse: Bool { !isClosed && (isOpen || isConnectClaimed) }

    mutating func add(_ opened: [DatagramDescriptor]) {
        entries += opened.map { Entry(descriptor: $0) }
    }

    /// Takes all of them out, or those that are not of `family`, which are about to be closed.
    mutating func withdraw(keeping family: DatagramDescriptor.Families? = nil) -> [DatagramDescriptor] {
        if family == nil { lastAddresses = localAddresses }
        var withdrawn: [DatagramDescriptor] = []
        for index in entries.indices where entries[index].descriptor.families != family {
            lastDropCount += entries[index].countDrops()
            withdrawn.append(entries[index].descriptor)
        }
        entries.removeAll { $0.descriptor.families != family }
        return withdrawn
    }

    /// The local addresses. The kernel is asked each time, since few callers want to know.
    var localAddresses: [SocketAddress] {
        if let sharedAddress { return [sharedAddress.socketAddress] }
        return entries.isEmpty ? lastAddresses : entries.compactMap(\.descriptor.localAddress)
    }

    /// The datagrams that the kernel had no room for, and those with a wrong checksum.
    mutating func countDrops() -> Int {
        entries.indices.reduce(lastDropCount) { $0 + entries[$1].countDrops() }
    }

    // MARK: - The peer

    /// `connect` was called, and has not failed.
    var isConnectClaimed: Bool { claim != nil }

    /// The number of a new call of `connect`; nil when another one has the socket. It need not wait until a
    /// `disconnect()` has happened, which the turn serves first.
    ///
    /// - Parameter host: The host that the caller connects to; nil for an address.
    mutating func claimConnect(to host: HostQuery? = nil) -> Int? {
        guard claim == nil || isLettingGo, !isClosed else { return nil }
        claimCount += 1
        (claim, isLettingGo, endpoint) = (claimCount, false, host)
        return claim
    }

    /// The peer of a descriptor that others have connected.
    mutating func notePeer() {
        peer = entries.first?.descriptor.remoteAddress
        if peer != nil { adoptedClaim = claimConnect() ?? 0 }
    }

    /// The socket is for a listener's peer.
    mutating func share(_ address: SocketAddress?, with peer: SocketAddress) {
        (self.peer, sharedAddress, isShared) = (peer, address.map { InternetAddress($0) }, address != nil)
        adoptedClaim = claimConnect() ?? 0
    }

    /// `disconnect()` was called: which call of `connect` it ends, if any.
    mutating func letGo() -> Int? {
        isLettingGo = claim != nil
        return claim
    }

    /// Inside the turn: the call of that number has failed, or its peer is forgotten. A later call may have
    /// the socket already.
    mutating func endClaim(_ number: Int) {
        peer = nil
        if claim == number { (claim, isLettingGo) = (nil, false) }
    }

    /// Inside the turn: the kernel does not forget the peer of the call of that number.
    mutating func keepClaim(_ number: Int) {
        if claim == number { isLettingGo = false }
    }
}

/// The result of a handshake, for callers, who do not enter the turn.
struct DatagramSecurity {
    let session: CopyOnWrite<TLSSession>?
    let exporter: KeyExporter
}

/// The counters of a UDP socket: written inside its turn, read by anyone.
final class DatagramCounts: Sendable {
    /// `startDTLS` was called, on any thread.
    let isUpgradeClaimed = Atomic(false)
    let rateLimited = Atomic(0)
    let pendingSendBytes = Atomic(0)
    /// Datagrams for which the mailbox of a listener's peer had no room.
    let mailboxDrops = Atomic(0)
    let droppedRecords = Atomic(0)
    /// The most bytes that a datagram of a secure socket may have; 0 before it is secure.
    let secureSendLimit = Atomic(0)
}

/// The local addresses that a socket is to have, and how its descriptors are set up.
struct DatagramBinding {
    /// One of each family at most, IPv4 first.
    let addresses: [SocketAddress]
    let reception: DatagramReception
    /// The kernel may lack one of the families.
    let isLenient: Bool

    /// How often another port is tried that must be free for both families.
    private static let attempts = 32

    /// Opens and binds a descriptor for each address, all on one port.
    func open(with options: SocketOptionSet) throws(SystemError) -> [DatagramDescriptor] {
        var lastError = SystemError("bind", errno: 0, detail: "there is no address to bind to")
        for _ in 0..<Self.attempts {
            do throws(SystemError) {
                return try openOnce(with: options)
            } catch {
                lastError = error
            }
            guard addresses.count > 1, addresses[0].port == 0, lastError.isAddressInUse else { break }
        }
        throw lastError
    }

    private func openOnce(with options: SocketOptionSet) throws(SystemError) -> [DatagramDescriptor] {
        var opened: [DatagramDescriptor] = []
        var refusal: SystemError?
        for address in addresses {
            do throws(SystemError) {
                let port = opened.first?.localAddress?.port ?? 0
                let descriptor = try Self.open(address.family, reception, options)
                try descriptor.bind(to: address.port == 0 ? address.withPort(port) : address)
                opened.append(descriptor)
            } catch {
                guard isLenient, error.isFamilyMissing else { throw error }
                refusal = error
            }
        }
        if opened.isEmpty, let refusal { throw refusal }
        return opened
    }

    /// A descriptor that is not bound yet.
    static func open(
        _ family: SocketAddress.Family, _ reception: DatagramReception, _ options: SocketOptionSet
    ) throws(SystemError) -> DatagramDescriptor {
        let descriptor = try DatagramDescriptor(opening: family == .ipv6 ? .ipv6 : .ipv4, options: options)
        _ = try descriptor.prepareReception(reception)
        return descriptor
    }
}
