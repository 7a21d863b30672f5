package import AsyncSockets
internal import FoundationEssentials
package import Glibc

extension RawSocket {
    /// A socket that is neither bound nor connected, with the arguments of socket(2).
    package convenience init(
        _ domain: Int32, _ type: __socket_type = SOCK_STREAM, protocol number: Int32 = 0, patience: Patience = .oneMinute
    ) throws(LoopbackError) {
        let descriptor = socket(domain, Int32(type.rawValue | SOCK_CLOEXEC.rawValue), number)
        guard descriptor >= 0 else { throw .system("socket") }
        self.init(owning: descriptor, patience: patience)
    }

    /// The two ends of a connection that the kernel makes without a network.
    package static func pair(
        _ type: __socket_type = SOCK_STREAM, patience: Patience = .oneMinute
    ) throws(LoopbackError) -> (RawSocket, RawSocket) {
        var ends: [Int32] = [-1, -1]
        let answer = socketpair(AF_UNIX, Int32(type.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends)
        guard answer == 0 else { throw .system("socketpair") }
        return (RawSocket(owning: ends[0], patience: patience), RawSocket(owning: ends[1], patience: patience))
    }

    // MARK: - Listening

    /// Bound, and not listening: what connects there is refused, and no one else gets the address. Closing it
    /// leaves the file of a Unix-domain socket behind.
    package static func bound(
        to address: SocketAddress, _ type: __socket_type = SOCK_STREAM, patience: Patience = .oneMinute
    ) throws(LoopbackError) -> RawSocket {
        let socket = try RawSocket(address.domain, type, patience: patience)
        guard socket.call(bind, address) == 0 else { throw .system("bind") }
        return socket
    }

    /// Bound to a port of a loopback address, and not listening.
    package static func refusing(_ host: String = SocketAddress.loopbackHost) throws(LoopbackError) -> RawSocket {
        try bound(to: .loopback(host))
    }

    package static func listening(
        on address: SocketAddress, backlog: Int32 = 8, patience: Patience = .oneMinute
    ) throws(LoopbackError) -> RawSocket {
        let listener = try bound(to: address, patience: patience)
        guard listen(listener.descriptor, backlog) == 0 else { throw .system("listen") }
        return listener
    }

    /// Listens on a port of a loopback address that the system chooses.
    package static func listening(
        _ host: String = SocketAddress.loopbackHost, backlog: Int32 = 8, patience: Patience = .oneMinute
    ) throws(LoopbackError) -> RawSocket {
        try listening(on: .loopback(host), backlog: backlog, patience: patience)
    }

    /// Waits for a connection.
    package func accepted() throws(LoopbackError) -> RawSocket {
        while true {
            try patience.wait(for: Int16(POLLIN), on: descriptor, "accept")
            // This does not block: Linux keeps a connection that ends before it is accepted.
            let accepted = accept(descriptor, nil, nil)
            if accepted < 0 && [EAGAIN, EINTR, ECONNABORTED].contains(errno) { continue }
            guard accepted >= 0 else { throw .system("accept") }
            _ = fcntl(accepted, F_SETFD, FD_CLOEXEC)
            let socket = RawSocket(owning: accepted, patience: patience)
            socket.sendAtOnce()
            return socket
        }
    }

    /// A port that no one has, on any address, and which the kernel gives to no one: it lies below those that
    /// it chooses from.
    package static func freePort() throws(LoopbackError) -> UInt16 {
        for port in UInt16.random(in: 20_000..<30_000)..<32_000 {
            guard let any = SocketAddress(literal: "::", port: port) else { break }
            do throws(LoopbackError) {
                _ = try bound(to: any)
                return port
            } catch {
                guard error.errorNumber == EADDRINUSE else { throw error }
            }
        }
        throw LoopbackError(.systemFailed, "No port is free.", operation: "bind")
    }

    // MARK: - Connecting

    /// Waits until it is connected.
    package static func connected(
        to address: SocketAddress, patience: Patience = .oneMinute
    ) throws(LoopbackError) -> RawSocket {
        let socket = try connecting(to: address, patience: patience)
        try patience.wait(for: Int16(POLLOUT), on: socket.descriptor, "connect")
        var failure: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        guard getsockopt(socket.descriptor, SOL_SOCKET, SO_ERROR, &failure, &length) == 0 else { throw .system("getsockopt") }
        guard failure == 0 else { throw .system("connect", failure) }
        _ = fcntl(socket.descriptor, F_SETFL, 0)
        socket.sendAtOnce()
        return socket
    }

    /// Begins to connect and does not wait. The descriptor does not block.
    package static func connecting(
        to address: SocketAddress, patience: Patience = .oneMinute
    ) throws(LoopbackError) -> RawSocket {
        let socket = try RawSocket(address.domain, patience: patience)
        _ = fcntl(socket.descriptor, F_SETFL, O_NONBLOCK)
        let answer = socket.call(connect, address)
        guard answer == 0 || errno == EINPROGRESS || errno == EINTR else { throw .system("connect") }
        return socket
    }

    private func call(_ body: (Int32, UnsafePointer<sockaddr>?, socklen_t) -> Int32, _ address: SocketAddress) -> Int32 {
        address.data.withUnsafeBytes {
            body(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
        }
    }
}

extension SocketAddress {
    /// Where a test listens and connects when it does not say.
    package static let loopbackHost = "127.0.0.1"

    /// An address of this machine, such as `127.0.0.1` or `::1`; port 0: one that the system chooses.
    package static func loopback(
        _ host: String = SocketAddress.loopbackHost, port: UInt16 = 0
    ) throws(LoopbackError) -> SocketAddress {
        guard let address = SocketAddress(literal: host, port: port) else {
            throw LoopbackError(.systemFailed, "\(host) is no address.", operation: "loopback")
        }
        return address
    }

    /// `AF_INET` and its like: what a `sockaddr` begins with.
    fileprivate var domain: Int32 {
        data.withUnsafeBytes { Int32($0.loadUnaligned(as: sa_family_t.self)) }
    }
}
