package import AsyncSockets
internal import FoundationEssentials
package import Glibc
internal import SocketBuffers

extension RawSocket {
    /// Creates a socket that is neither bound nor connected, with the arguments of socket(2).
    package convenience init(
        _ domain: Int32, _ type: __socket_type = SOCK_STREAM, protocol number: Int32 = 0, waitLimit: WaitLimit = .usual
    ) throws(LoopbackError) {
        let descriptor = socket(domain, Int32(type.rawValue | SOCK_CLOEXEC.rawValue), number)
        guard descriptor >= 0 else { throw .system("socket") }
        self.init(owning: descriptor, waitLimit: waitLimit)
    }

    /// Creates two connected sockets with socketpair(2), without a network.
    package static func pair(
        _ type: __socket_type = SOCK_STREAM, waitLimit: WaitLimit = .usual
    ) throws(LoopbackError) -> (RawSocket, RawSocket) {
        var ends: [Int32] = [-1, -1]
        let answer = socketpair(AF_UNIX, Int32(type.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends)
        guard answer == 0 else { throw .system("socketpair") }
        return (RawSocket(owning: ends[0], waitLimit: waitLimit), RawSocket(owning: ends[1], waitLimit: waitLimit))
    }

    // MARK: - Listening

    /// Creates a socket that is bound but does not listen. It reserves the address, and connections to it
    /// are refused. The file of a Unix-domain socket is not removed when the socket is closed.
    package static func bound(
        to address: SocketEndpoint, _ type: __socket_type = SOCK_STREAM, waitLimit: WaitLimit = .usual
    ) throws(LoopbackError) -> RawSocket {
        let socket = try RawSocket(address.domain, type, waitLimit: waitLimit)
        guard socket.call(bind, address) == 0 else { throw .system("bind") }
        return socket
    }

    /// Creates a socket that is bound to a port on a loopback address and does not listen.
    package static func refusing(_ host: String = SocketEndpoint.loopbackHost) throws(LoopbackError) -> RawSocket {
        try bound(to: .loopback(host))
    }

    package static func listening(
        on address: SocketEndpoint, backlog: Int32 = 8, waitLimit: WaitLimit = .usual
    ) throws(LoopbackError) -> RawSocket {
        let listener = try bound(to: address, waitLimit: waitLimit)
        guard listen(listener.descriptor, backlog) == 0 else { throw .system("listen") }
        return listener
    }

    /// Listens on a loopback address, at a port that the system chooses.
    package static func listening(
        _ host: String = SocketEndpoint.loopbackHost, backlog: Int32 = 8, waitLimit: WaitLimit = .usual
    ) throws(LoopbackError) -> RawSocket {
        try listening(on: .loopback(host), backlog: backlog, waitLimit: waitLimit)
    }

    /// Accepts a connection, waiting for one if necessary.
    package func accepted() throws(LoopbackError) -> RawSocket {
        while true {
            try waitLimit.wait(for: Int16(POLLIN), on: descriptor, "accept")
            // This does not block: Linux keeps a connection in the queue even if it closes before it is
            // accepted.
            let accepted = accept(descriptor, nil, nil)
            if accepted < 0 && [EAGAIN, EINTR, ECONNABORTED].contains(errno) { continue }
            guard accepted >= 0 else { throw .system("accept") }
            _ = fcntl(accepted, F_SETFD, FD_CLOEXEC)
            let socket = RawSocket(owning: accepted, waitLimit: waitLimit)
            socket.sendAtOnce()
            return socket
        }
    }

    private static let assignedPorts = Locked<Set<UInt16>>([])

    /// Returns a port that is free on all addresses, and a different port on each call. The kernel does not
    /// assign the port to another socket, because it is below the ephemeral port range.
    package static func freePort() throws(LoopbackError) -> UInt16 {
        for port in UInt16.random(in: 20_000..<30_000)..<32_000 {
            guard let any = SocketEndpoint(literal: "::", port: port) else { break }
            // A program that was given the port may not have bound it yet.
            guard assignedPorts.withLock({ $0.insert(port).inserted }) else { continue }
            do throws(LoopbackError) {
                _ = try bound(to: any)
                return port
            } catch {
                guard error.errorNumber == EADDRINUSE else { throw error }
            }
        }
        throw LoopbackError(.systemFailed, "no port is free", operation: "bind")
    }

    // MARK: - Connecting

    /// Connects a socket, and returns it once the connection is established.
    ///
    /// - Parameter host: The local address. With `nil`, the kernel chooses it.
    package static func connected(
        to address: SocketEndpoint, from host: String? = nil, waitLimit: WaitLimit = .usual
    ) throws(LoopbackError) -> RawSocket {
        let socket = try connecting(to: address, from: host, waitLimit: waitLimit)
        try waitLimit.wait(for: Int16(POLLOUT), on: socket.descriptor, "connect")
        var failure: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        guard getsockopt(socket.descriptor, SOL_SOCKET, SO_ERROR, &failure, &length) == 0 else { throw .system("getsockopt") }
        guard failure == 0 else { throw .system("connect", failure) }
        _ = fcntl(socket.descriptor, F_SETFL, 0)
        socket.sendAtOnce()
        return socket
    }

    /// Starts to connect without waiting. The descriptor is non-blocking.
    package static func connecting(
        to address: SocketEndpoint, from host: String? = nil, waitLimit: WaitLimit = .usual
    ) throws(LoopbackError) -> RawSocket {
        let socket =
            if let host { try bound(to: .loopback(host), waitLimit: waitLimit) } else {
                try RawSocket(address.domain, waitLimit: waitLimit)
            }
        _ = fcntl(socket.descriptor, F_SETFL, O_NONBLOCK)
        let answer = socket.call(connect, address)
        guard answer == 0 || errno == EINPROGRESS || errno == EINTR else { throw .system("connect") }
        return socket
    }

    private func call(_ body: (Int32, UnsafePointer<sockaddr>?, socklen_t) -> Int32, _ address: SocketEndpoint) -> Int32 {
        address.data.withUnsafeBytes {
            body(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
        }
    }
}

extension SocketEndpoint {
    package static let loopbackHost = "127.0.0.1"

    /// Returns an address of this machine, such as `127.0.0.1` or `::1`. If the port is 0, the system
    /// chooses one.
    package static func loopback(
        _ host: String = SocketEndpoint.loopbackHost, port: UInt16 = 0
    ) throws(LoopbackError) -> SocketEndpoint {
        guard let address = SocketEndpoint(literal: host, port: port) else {
            throw LoopbackError(.systemFailed, "\"\(host)\" is not an address", operation: "loopback")
        }
        return address
    }

    /// The address family at the start of a `sockaddr`, such as `AF_INET`.
    fileprivate var domain: Int32 {
        data.withUnsafeBytes { Int32($0.loadUnaligned(as: sa_family_t.self)) }
    }
}
