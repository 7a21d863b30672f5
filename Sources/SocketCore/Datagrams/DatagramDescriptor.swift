// Rules of a UDP socket:
//  1. It has one owner, and is closed once (`SocketDescriptor`).
//  2. It hears a multicast group only after it has joined it. Linux would hand a socket that is bound to a
//     wildcard address each group that any socket of the machine has joined (ip(7), `IP_MULTICAST_ALL`).
//  3. Its local port stays the same until it is closed, also when it connects and disconnects.
//  4. A call that fails leaves it open: an error of one datagram is an answer, and nothing here closes the
//     socket for it.

internal import CLinux
internal import Glibc

/// A UDP socket as the kernel knows it. One thread uses it at a time.
package struct DatagramDescriptor: Sendable {
    /// Which versions of IP a socket has.
    package enum Families: Hashable, Sendable {
        case ipv4
        /// IPv6 only: another socket may have the IPv4 port of the same number.
        case ipv6
        /// A socket of IPv6 that has the IPv4 port too; the addresses of IPv4 are `::ffff:192.0.2.1` there
        /// (RFC 4291, section 2.5.5.2).
        case both
    }

    package let socket: SocketDescriptor
    package let families: Families

    /// A new socket, which is not bound yet.
    ///
    /// - Parameter options: Set before it is bound.
    package init(opening families: Families, options: SocketOptionSet = SocketOptionSet()) throws(SystemError) {
        let type = CInt(SOCK_DGRAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        let number = Glibc.socket(families == .ipv4 ? AF_INET : AF_INET6, type, 0)
        guard number >= 0 else { throw SystemError("socket") }
        self.init(SocketDescriptor(adopting: number), families)
        // The system may have changed the default (`net.ipv6.bindv6only`).
        if families != .ipv4 { try socket.set(.isForIPv6Only, to: families == .ipv6) }
        try setIfKnown(.hearsAllGroups, to: false)
        try options.apply(toNew: socket, alsoForIPv4: families == .both)
    }

    /// Takes over an open UDP socket, and makes it non-blocking and close-on-exec.
    ///
    /// - Parameter number: Checked with `check(_:)`.
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
            // It is not a socket, and each call on it fails.
            return .ipv4
        }
    }

    /// Throws unless the descriptor is a UDP socket. Sets `options` on one, and changes nothing else.
    ///
    /// - Throws: EBADF, ENOTSOCK, ESOCKTNOSUPPORT for another type or protocol, EAFNOSUPPORT for another
    ///   family; the kernel's refusal of an option.
    package static func check(_ number: CInt, setting options: SocketOptionSet = SocketOptionSet()) throws(SystemError) {
        // Borrowed, and left open.
        let socket = SocketDescriptor(adopting: number)
        defer { socket.relinquish() }
        guard try socket.option(SO_TYPE, "SO_TYPE") == CInt(SOCK_DGRAM.rawValue) else {
            throw SystemError("getsockopt(SO_TYPE)", errno: ESOCKTNOSUPPORT, detail: "it is not a datagram socket")
        }
        guard [AF_INET, AF_INET6].contains(try socket.option(SO_DOMAIN, "SO_DOMAIN")) else {
            throw SystemError("getsockopt(SO_DOMAIN)", errno: EAFNOSUPPORT, detail: "it is not a socket of IPv4 or IPv6")
        }
        guard try socket.option(SO_PROTOCOL, "SO_PROTOCOL") == CInt(IPPROTO_UDP) else {
            throw SystemError("getsockopt(SO_PROTOCOL)", errno: ESOCKTNOSUPPORT, detail: "its protocol is not UDP")
        }
        try options.apply(toBound: socket, alsoForIPv4: families(of: socket) == .both)
    }

    // MARK: - Addresses

    package var localAddress: SocketAddress? { socket.localAddress }
    /// The peer of a connected socket.
    package var remoteAddress: SocketAddress? { socket.remoteAddress }

    /// Gives it a local address; the kernel chooses a port in place of 0.
    package func bind(to address: SocketAddress) throws(SystemError) {
        guard address.withSockaddr({ Glibc.bind(socket.rawValue, $0, $1) }) == 0 else {
            throw SystemError("bind").about(address)
        }
    }

    /// Chooses the peer to which datagrams without a destination go, and from which alone datagrams arrive.
    ///
    /// Those of others that have arrived before are still received: compare the sender.
    package func connect(to address: SocketAddress) throws(SystemError) {
        // The kernel would keep the source that it chose for the peer before.
        if remoteAddress != nil { try disconnect() }
        guard address.withSockaddr({ Glibc.connect(socket.rawValue, $0, $1) }) == 0 else {
            throw SystemError("connect").about(address)
        }
    }

    /// Datagrams of all arrive again. The local port stays the same.
    ///
    /// - Throws: EADDRINUSE when another socket has taken the port meanwhile.
    package func disconnect() throws(SystemError) {
        let port = localAddress?.port ?? 0
        var nowhere = sockaddr()
        nowhere.sa_family = sa_family_t(AF_UNSPEC)
        let answer = Glibc.connect(socket.rawValue, &nowhere, socklen_t(MemoryLayout<sockaddr>.size))
        guard answer == 0 else { throw SystemError("connect") }
        // The kernel forgets a port that it has chosen itself.
        guard port != 0, let local = localAddress, local.port == 0 else { return }
        try bind(to: local.withPort(port))
    }

    /// It has an IPv4 port. One for both versions of IP has it unless its address is one of IPv6.
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

    /// Sets an option, for both versions of IP where the socket has both.
    package func set<Value>(_ option: SocketOption<Value>, to value: Value) throws(SystemError) {
        try socket.set(option, to: value, alsoForIPv4: families == .both)
    }

    /// Sets an option that the kernel may lack.
    ///
    /// - Returns: Whether it has it.
    @discardableResult
    func setIfKnown<Value>(_ option: SocketOption<Value>, to value: Value) throws(SystemError) -> Bool {
        do throws(SystemError) {
            try set(option, to: value)
            return true
        } catch {
            guard error.errno == ENOPROTOOPT || error.errno == EOPNOTSUPP else { throw error }
            return false
        }
    }
}
