internal import CLinux
internal import Glibc

// Descriptors that someone else has made.
extension SocketDescriptor {
    /// The peer of a connected TCP or Unix-domain stream; changes nothing about the descriptor.
    ///
    /// - Throws: EBADF, ENOTSOCK, ESOCKTNOSUPPORT for another type or protocol, EAFNOSUPPORT for another
    ///   family, ENOTCONN.
    package static func peerOfConnectedStream(_ rawValue: CInt) throws(SystemError) -> SocketAddress {
        // Borrowed for the questions below, and given back open.
        let descriptor = SocketDescriptor(adopting: rawValue)
        defer { descriptor.relinquish() }
        guard try descriptor.option(SO_TYPE, "SO_TYPE") == CInt(SOCK_STREAM.rawValue) else {
            throw SystemError("getsockopt(SO_TYPE)", errno: ESOCKTNOSUPPORT)
        }
        let domain = try descriptor.option(SO_DOMAIN, "SO_DOMAIN")
        guard [AF_INET, AF_INET6, AF_UNIX].contains(domain) else {
            throw SystemError("getsockopt(SO_DOMAIN)", errno: EAFNOSUPPORT)
        }
        let kind = try descriptor.option(SO_PROTOCOL, "SO_PROTOCOL")
        guard domain == AF_UNIX || kind == CInt(IPPROTO_TCP) || kind == CInt(IPPROTO_MPTCP) else {
            throw SystemError("getsockopt(SO_PROTOCOL)", errno: ESOCKTNOSUPPORT)
        }
        guard let peer = descriptor.remoteAddress else { throw SystemError("getpeername", errno: ENOTCONN) }
        return peer
    }

    /// Takes over an open socket, which becomes non-blocking and close-on-exec.
    package convenience init(takingOver rawValue: CInt) {
        // Neither call fails for an open socket (fcntl(2)).
        _ = fcntl(rawValue, F_SETFD, FD_CLOEXEC)
        _ = fcntl(rawValue, F_SETFL, fcntl(rawValue, F_GETFL) | CInt(SOCK_NONBLOCK.rawValue))
        self.init(adopting: rawValue)
    }

    private func option(_ option: CInt, _ name: String) throws(SystemError) -> CInt {
        var value: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(rawValue, SOL_SOCKET, option, &value, &size) == 0 else { throw SystemError("getsockopt(\(name))") }
        return value
    }
}
