// Rules of a descriptor:
//  1. It has one owner. It is closed once, after it was removed from its event loop.
//  2. It is non-blocking and close-on-exec, and never raises SIGPIPE.
//  3. After it is closed, every call fails with EBADF. No call can reach a descriptor number that the kernel
//     has reused.

package import CLinux
internal import Glibc

/// The owner of an accepted connection.
package protocol ConnectionOwner: AnyObject, Sendable {
    /// Starts to close an unproven connection. Returns `false` if the connection is proven. Callable from any
    /// thread.
    func giveWay() -> Bool
}

/// The observer of an accepted descriptor. Callable from any thread.
protocol DescriptorObserver: AnyObject, Sendable {
    /// Called once, when a connection takes ownership of the descriptor.
    func descriptorDidFind(_ owner: any ConnectionOwner)
    /// Called when the peer of the connection has proved itself.
    func ownerIsProven()
    /// Called once, when the descriptor is closed or relinquished.
    func descriptorDidClose()
}

/// A stream socket descriptor. `DatagramDescriptor` also uses it to hold its socket.
///
/// Only one thread uses it at a time: in the turn of a connection or its connector, while holding the lock
/// of an acceptor, or on the loop during a lingering close. Other threads may read and set a connection's
/// socket options and read its address while they hold the lock of the connection's record.
package final class SocketDescriptor: LoopDescriptor, @unchecked Sendable {
    // Unchecked: `rawValue` changes only in `close` and `relinquish`. An acceptor closes its descriptor
    // while holding its lock. A connection first removes the descriptor from its record while holding the
    // lock, so that no other thread can access it.
    @exclusivity(unchecked) package private(set) var rawValue: CInt
    /// Set only before the descriptor is passed to its owner.
    @exclusivity(unchecked) var observer: (any DescriptorObserver)?

    // The results of `receive` and `send` contain only plain numbers. With an error that contains strings,
    // every result would be destroyed by a function that is looked up at run time.

    package enum ReceiveAnswer {
        case bytes(Int)
        case wouldBlock
        case endOfFile
        case failed(errno: CInt)

        package static func error(_ errno: CInt) -> SystemError { SystemError("recv", errno: errno) }
    }

    package enum SendAnswer {
        case bytes(Int)
        /// The socket buffer is full. An event reports when there is room.
        case wouldBlock
        /// The kernel is out of memory, although the socket may have room. No event follows, so try again
        /// after `shortageSeconds`.
        case exhausted
        case failed(SendCall, errno: CInt)

        /// Classifies `errno` after `call` failed.
        init(failureOf call: SendCall) {
            switch errno {
            case EAGAIN: self = .wouldBlock
            case ENOBUFS, ENOMEM: self = .exhausted
            case let code: self = .failed(call, errno: code)
            }
        }
    }

    package enum SendCall: String {
        case send, sendmsg, sendfile, pread

        package func error(_ errno: CInt) -> SystemError {
            errno == ENODATA ? .shorterFile(rawValue) : SystemError(rawValue, errno: errno)
        }
    }

    /// The delay before a retry when the kernel is out of memory.
    package static let shortageSeconds = 0.01

    package enum ConnectAnswer {
        case connected
        case inProgress
        case failed(SystemError)
    }

    /// Takes over an open, non-blocking descriptor.
    package init(adopting rawValue: CInt) {
        self.rawValue = rawValue
    }

    /// Opens a stream socket. Uses Multipath TCP if requested and supported by the kernel.
    package convenience init(streamOf family: SocketEndpoint.Family, wantsMultipath: Bool = false) throws(SystemError) {
        let domain: CInt =
            switch family {
            case .ipv4: AF_INET
            case .ipv6: AF_INET6
            case .unix: AF_UNIX
            case .vsock: AF_VSOCK
            }
        let type = CInt(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        var descriptor: CInt = -1
        if wantsMultipath, family.isInternet { descriptor = socket(domain, type, CInt(IPPROTO_MPTCP)) }
        if descriptor < 0 { descriptor = socket(domain, type, 0) }
        guard descriptor >= 0 else { throw SystemError("socket") }
        self.init(adopting: descriptor)
    }

    deinit { close() }

    // MARK: - Bytes

    package func receive(into room: UnsafeMutableRawBufferPointer) -> ReceiveAnswer {
        let count = retryingOnInterrupt { recv(rawValue, room.baseAddress, room.count, 0) }
        if count > 0 { return .bytes(count) }
        if count == 0 { return .endOfFile }
        return errno == EAGAIN ? .wouldBlock : .failed(errno: errno)
    }

    package func send(_ parts: UnsafeBufferPointer<iovec>) -> SendAnswer {
        if parts.count == 1 { return send(UnsafeRawBufferPointer(start: parts[0].iov_base, count: parts[0].iov_len)) }
        var message = msghdr()
        message.msg_iov = UnsafeMutablePointer(mutating: parts.baseAddress)
        message.msg_iovlen = parts.count
        let count = retryingOnInterrupt { sendmsg(rawValue, &message, CInt(MSG_NOSIGNAL)) }
        if count >= 0 { return .bytes(count) }
        return SendAnswer(failureOf: .sendmsg)
    }

    package func send(_ bytes: UnsafeRawBufferPointer) -> SendAnswer {
        let count = retryingOnInterrupt { Glibc.send(rawValue, bytes.baseAddress, bytes.count, CInt(MSG_NOSIGNAL)) }
        if count >= 0 { return .bytes(count) }
        return SendAnswer(failureOf: .send)
    }

    // MARK: - Connecting and closing

    package func connect(to address: SocketEndpoint) -> ConnectAnswer {
        let result = address.withSockaddr { Glibc.connect(rawValue, $0, $1) }
        if result == 0 { return .connected }
        // POSIX specifies that an interrupted connect continues asynchronously.
        return errno == EINPROGRESS || errno == EINTR ? .inProgress : .failed(SystemError("connect"))
    }

    /// Reads and clears the error that an event announced (`SO_ERROR`).
    package func takeError(of call: String) -> SystemError? {
        var code: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(rawValue, SOL_SOCKET, SO_ERROR, &code, &size) == 0 else { return SystemError("getsockopt(SO_ERROR)") }
        return code == 0 ? nil : SystemError(call, errno: code)
    }

    /// Sends a FIN, after which no more data can be sent.
    package func shutdownWriting() {
        _ = shutdown(rawValue, CInt(SHUT_WR))
    }

    package func close() {
        guard rawValue >= 0 else { return }
        // Linux releases the number even if close is interrupted, so it must never be called twice.
        _ = Glibc.close(rawValue)
        leave()
    }

    /// Gives up ownership of the descriptor without closing it.
    package func relinquish() {
        guard rawValue >= 0 else { return }
        leave()
    }

    private func leave() {
        rawValue = -1
        observer?.descriptorDidClose()
        observer = nil
    }

    // MARK: - Properties and options

    package var localAddress: SocketEndpoint? { address(getsockname) }
    package var remoteAddress: SocketEndpoint? { address(getpeername) }

    private func address(
        _ ask: (CInt, UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> CInt
    ) -> SocketEndpoint? {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let result = withUnsafeMutablePointer(to: &storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { ask(rawValue, $0, &length) }
        }
        return result == 0 ? SocketEndpoint(storage: &storage, length: length) : nil
    }

    /// Whether a TCP connection has carried data in either direction. `true` if the kernel does not know.
    package var hasCarriedData: Bool { CLinux_tcp_has_carried_data(rawValue) != 0 }

    /// Whether both sides negotiated Multipath TCP (RFC 8684). `false` for a plain TCP socket, and for a
    /// connection that has fallen back to TCP.
    package var isMultipath: Bool {
        var kind: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(rawValue, SOL_SOCKET, SO_PROTOCOL, &kind, &length) == 0, kind == CInt(IPPROTO_MPTCP) else {
            return false
        }
        var facts = mptcp_info()
        length = socklen_t(MemoryLayout<mptcp_info>.size)
        guard getsockopt(rawValue, SOL_MPTCP, MPTCP_INFO, &facts, &length) == 0 else { return false }
        return facts.mptcpi_flags & Self.hasFallenBack == 0 && facts.mptcpi_flags & Self.hasPeersKey != 0
    }

    // `MPTCP_INFO_FLAG_FALLBACK` and `MPTCP_INFO_FLAG_REMOTE_KEY_RECEIVED` from linux/mptcp.h, because Swift
    // does not import these macros.
    private static let hasFallenBack: UInt32 = 1 << 0
    private static let hasPeersKey: UInt32 = 1 << 1

    /// Disables Nagle's algorithm (`TCP_NODELAY`). Queued writes are already coalesced, so the algorithm
    /// would only add delay.
    package func setNoDelay() {
        setFlag(level: CInt(IPPROTO_TCP), option: TCP_NODELAY)
    }

    func setFlag(level: CInt, option: CInt) {
        var on: CInt = 1
        _ = setsockopt(rawValue, level, option, &on, socklen_t(MemoryLayout<CInt>.size))
    }
}

// MARK: - Descriptors from other code

extension SocketDescriptor {
    /// Returns the peer of a connected TCP or Unix-domain stream socket, without changing the descriptor.
    ///
    /// - Throws: EBADF; ENOTSOCK; ESOCKTNOSUPPORT for a different type or protocol; EAFNOSUPPORT for a
    ///   different family; or ENOTCONN.
    package static func peerOfConnectedStream(_ rawValue: CInt) throws(SystemError) -> SocketEndpoint {
        // Only borrowed; must not be closed here.
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

    /// Throws unless the descriptor is a listening stream socket of a supported family. Does not change the
    /// descriptor.
    ///
    /// - Throws: EBADF; ENOTSOCK; ESOCKTNOSUPPORT for a different type or protocol; EAFNOSUPPORT for a
    ///   different family; or EINVAL if the socket is not listening.
    package static func checkListening(_ rawValue: CInt) throws(SystemError) {
        // Only borrowed; must not be closed here.
        let descriptor = SocketDescriptor(adopting: rawValue)
        defer { descriptor.relinquish() }
        guard try descriptor.option(SO_TYPE, "SO_TYPE") == CInt(SOCK_STREAM.rawValue) else {
            throw SystemError("getsockopt(SO_TYPE)", errno: ESOCKTNOSUPPORT, detail: "not a stream socket")
        }
        let domain = try descriptor.option(SO_DOMAIN, "SO_DOMAIN")
        guard [AF_INET, AF_INET6, AF_UNIX, AF_VSOCK].contains(domain) else {
            throw SystemError("getsockopt(SO_DOMAIN)", errno: EAFNOSUPPORT)
        }
        let kind = try descriptor.option(SO_PROTOCOL, "SO_PROTOCOL")
        guard domain == AF_UNIX || domain == AF_VSOCK || kind == CInt(IPPROTO_TCP) || kind == CInt(IPPROTO_MPTCP) else {
            throw SystemError("getsockopt(SO_PROTOCOL)", errno: ESOCKTNOSUPPORT)
        }
        guard try descriptor.option(SO_ACCEPTCONN, "SO_ACCEPTCONN") != 0 else {
            throw SystemError("getsockopt(SO_ACCEPTCONN)", errno: EINVAL, detail: "not a listening socket")
        }
    }

    /// Takes over an open socket and makes it non-blocking and close-on-exec.
    package convenience init(takingOver rawValue: CInt) {
        // These calls cannot fail for an open socket (fcntl(2)).
        _ = fcntl(rawValue, F_SETFD, FD_CLOEXEC)
        _ = fcntl(rawValue, F_SETFL, fcntl(rawValue, F_GETFL) | CInt(SOCK_NONBLOCK.rawValue))
        self.init(adopting: rawValue)
    }

    func option(_ option: CInt, _ name: String) throws(SystemError) -> CInt {
        var value: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(rawValue, SOL_SOCKET, option, &value, &size) == 0 else { throw SystemError("getsockopt(\(name))") }
        return value
    }
}
