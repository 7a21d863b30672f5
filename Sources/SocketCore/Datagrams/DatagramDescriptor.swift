// Rules of a UDP socket:
//  1. It has one owner and is closed once (`SocketDescriptor`).
//  2. It receives datagrams for a multicast group only after joining the group. By default on Linux, a
//     socket bound to a wildcard address also receives datagrams for every group that any other socket on
//     the machine has joined (ip(7), `IP_MULTICAST_ALL`).
//  3. Its local port stays the same until it is closed, even when it connects and disconnects.
//  4. It stays open when a call fails. An error that concerns a single datagram is returned to the caller
//     and never closes the socket.

internal import CLinux
internal import Glibc

/// A non-blocking UDP socket. Only one thread may use it at a time.
package struct DatagramDescriptor: Sendable {
    package enum Families: Hashable, Sendable {
        case ipv4
        /// IPv6 only. Another socket may use the same port number for IPv4.
        case ipv6
        /// A dual-stack IPv6 socket that also occupies the IPv4 port. IPv4 addresses have the form
        /// `::ffff:192.0.2.1` (RFC 4291, section 2.5.5.2).
        case both
    }

    package let socket: SocketDescriptor
    package let families: Families

    /// Creates a socket without binding it.
    ///
    /// - Parameter options: The options to set before the socket is bound.
    package init(opening families: Families, options: SocketOptionSet = SocketOptionSet()) throws(SystemError) {
        let type = CInt(SOCK_DGRAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        let number = Glibc.socket(families == .ipv4 ? AF_INET : AF_INET6, type, 0)
        guard number >= 0 else { throw SystemError("socket") }
        self.init(SocketDescriptor(adopting: number), families)
        // The system default depends on `net.ipv6.bindv6only`.
        if families != .ipv4 { try socket.set(.isForIPv6Only, to: families == .ipv6) }
        // A filter that refuses the option must not remove the isolation from other programs' groups.
        try setIfPossible(.hearsAllGroups, to: false, mayBeRefused: false)
        try options.apply(toNew: socket, alsoForIPv4: families == .both)
    }

    /// Takes ownership of an open UDP socket and makes it non-blocking and close-on-exec.
    ///
    /// - Parameter number: A descriptor that `check(_:)` has accepted.
    package init(takingOver number: CInt) {
        let socket = SocketDescriptor(takingOver: number)
        self.init(socket, Self.families(of: socket))
    }

    private init(_ socket: SocketDescriptor, _ families: Families) {
        self.socket = socket
        self.families = families
    }

    private static func families(of socket: SocketDescriptor) -> Families {
        do throws(SystemError) {
            guard try socket.option(SO_DOMAIN, "SO_DOMAIN") == AF_INET6 else { return .ipv4 }
            return try socket.value(of: .isForIPv6Only) ? .ipv6 : .both
        } catch {
            // The descriptor is not a socket, so every later call on it fails anyway.
            return .ipv4
        }
    }

    /// Checks that the descriptor is a UDP socket and sets `options` on it. Changes no other state.
    ///
    /// - Throws: EBADF; ENOTSOCK; ESOCKTNOSUPPORT for a different type or protocol; EAFNOSUPPORT for a
    ///   different family; with `isServer`, EINVAL if the socket is not bound and EISCONN if it is connected;
    ///   or the kernel's error for an option.
    package static func check(
        _ number: CInt, setting options: SocketOptionSet = SocketOptionSet(), isServer: Bool = false
    ) throws(SystemError) {
        // Borrows the descriptor without closing it.
        let socket = SocketDescriptor(adopting: number)
        defer { socket.relinquish() }
        guard try socket.option(SO_TYPE, "SO_TYPE") == CInt(SOCK_DGRAM.rawValue) else {
            throw SystemError("getsockopt(SO_TYPE)", errno: ESOCKTNOSUPPORT, detail: "not a datagram socket")
        }
        guard [AF_INET, AF_INET6].contains(try socket.option(SO_DOMAIN, "SO_DOMAIN")) else {
            throw SystemError("getsockopt(SO_DOMAIN)", errno: EAFNOSUPPORT, detail: "not an IPv4 or IPv6 socket")
        }
        guard try socket.option(SO_PROTOCOL, "SO_PROTOCOL") == CInt(IPPROTO_UDP) else {
            throw SystemError("getsockopt(SO_PROTOCOL)", errno: ESOCKTNOSUPPORT, detail: "not a UDP socket")
        }
        if isServer {
            guard socket.localAddress?.port ?? 0 != 0 else {
                throw SystemError("getsockname", errno: EINVAL, detail: "the socket is not bound")
            }
            if let peer = socket.remoteAddress {
                throw SystemError("getpeername", errno: EISCONN, detail: "the socket is connected").about(peer)
            }
        }
        try options.apply(toBound: socket, alsoForIPv4: families(of: socket) == .both)
    }

    // MARK: - Addresses

    package var localAddress: SocketEndpoint? { socket.localAddress }
    /// The peer of a connected socket.
    package var remoteAddress: SocketEndpoint? { socket.remoteAddress }

    /// Binds the socket to a local address. The kernel chooses a port if the port is 0.
    package func bind(to address: SocketEndpoint) throws(SystemError) {
        guard address.withSockaddr({ Glibc.bind(socket.rawValue, $0, $1) }) == 0 else {
            throw SystemError("bind").about(address)
        }
    }

    /// Sets the peer, which becomes the default destination and the only sender from which datagrams are
    /// received.
    ///
    /// Datagrams from other senders that arrived before this call are still received, so check the sender of
    /// each datagram.
    package func connect(to address: SocketEndpoint) throws(SystemError) {
        // Otherwise, the kernel would keep the source address that it chose for the previous peer.
        if remoteAddress != nil { try disconnect() }
        guard address.withSockaddr({ Glibc.connect(socket.rawValue, $0, $1) }) == 0 else {
            throw SystemError("connect").about(address)
        }
    }

    /// Removes the peer, so that datagrams from every sender are received again. The local port stays the
    /// same.
    ///
    /// - Throws: EADDRINUSE if another socket bound the port in the meantime.
    package func disconnect() throws(SystemError) {
        let port = localAddress?.port ?? 0
        try release()
        guard port != 0, let local = localAddress, local.port == 0 else { return }
        try bind(to: local.withPort(port))
    }

    /// Removes the peer, and the local port if the kernel chose it. The socket can then be bound again.
    package func release() throws(SystemError) {
        var nowhere = sockaddr()
        nowhere.sa_family = sa_family_t(AF_UNSPEC)
        let answer = Glibc.connect(socket.rawValue, &nowhere, socklen_t(MemoryLayout<sockaddr>.size))
        guard answer == 0 else { throw SystemError("connect") }
    }

    /// Whether the socket occupies an IPv4 port. A dual-stack socket does so unless it is bound to a native
    /// IPv6 address.
    package var hasIPv4: Bool {
        switch families {
        case .ipv4: return true
        case .ipv6: return false
        case .both:
            let host = localAddress?.hostBytes ?? []
            return host.allSatisfy { $0 == 0 } || host.starts(with: AddressPrefix.mappedBeginning)
        }
    }

    // MARK: - Options

    /// Sets an option. On a dual-stack socket, sets it for both IP versions.
    package func set<Value>(_ option: SocketOptionKey<Value>, to value: Value) throws(SystemError) {
        try socket.set(option, to: value, alsoForIPv4: families == .both)
    }

    /// Sets an option that the kernel may not support.
    ///
    /// - Parameter mayBeRefused: Whether the socket is usable if a system call filter refuses the option.
    /// - Returns: Whether the option was set.
    @discardableResult
    package func setIfPossible<Value>(
        _ option: SocketOptionKey<Value>, to value: Value, mayBeRefused: Bool = true
    ) throws(SystemError) -> Bool {
        do throws(SystemError) {
            try set(option, to: value)
            return true
        } catch {
            let isUnknown = [ENOPROTOOPT, EOPNOTSUPP].contains(error.errno)
            guard isUnknown || mayBeRefused && [ENOSYS, EPERM, EACCES].contains(error.errno) else { throw error }
            return false
        }
    }
}
