// Rules of a descriptor:
//  1. It has one owner. It is closed once, after it has left its event loop.
//  2. It is non-blocking and close-on-exec, and never raises SIGPIPE.
//  3. When it is closed every call fails with EBADF, and none touches a number that the kernel may have
//     reused.

package import CLinux
internal import Glibc

/// An observer of a descriptor's end: one call, on any thread, when the descriptor is closed or relinquished.
protocol DescriptorObserver: AnyObject, Sendable {
    func descriptorDidClose()
}

/// A stream socket as the kernel knows it. `DatagramDescriptor` keeps its socket in one too.
///
/// One thread uses it at a time: inside the turn of a connection or its connector, under the lock of an
/// acceptor, or on the loop in a lingering close. Other threads read and set the options of a connection's
/// descriptor, and read its address, under the lock of the connection's record.
package final class SocketDescriptor: LoopDescriptor, @unchecked Sendable {
    // Unchecked: `rawValue` changes only in `close` and `relinquish`. An acceptor closes its descriptor under
    // its lock. A connection takes its descriptor out of its record first, under the lock, so that no other
    // thread can reach it.
    @exclusivity(unchecked) package private(set) var rawValue: CInt
    /// Set before the descriptor has its owner, and not afterwards.
    @exclusivity(unchecked) var observer: (any DescriptorObserver)?

    // The answers of the kernel to `receive` and `send` are plain numbers: an error with strings in it would
    // have each answer destroyed by a function that is looked up at run time.

    /// The kernel's answer to `receive`.
    package enum ReceiveAnswer {
        case bytes(Int)
        case wouldBlock
        case endOfFile
        /// With the `errno` of recv(2).
        case failed(errno: CInt)

        package static func error(_ errno: CInt) -> SystemError { SystemError("recv", errno: errno) }
    }

    /// The kernel's answer to `send`.
    package enum SendAnswer {
        case bytes(Int)
        /// There is no room: an event says when to go on.
        case wouldBlock
        /// The kernel has no memory, though the socket may have room. No event follows: try again after
        /// `shortageSeconds`.
        case exhausted
        case failed(SendCall, errno: CInt)

        /// What `errno` says after `call`.
        init(failureOf call: SendCall) {
            switch errno {
            case EAGAIN: self = .wouldBlock
            case ENOBUFS, ENOMEM: self = .exhausted
            case let code: self = .failed(call, errno: code)
            }
        }
    }

    /// The system call that sends.
    package enum SendCall: String {
        case send, sendmsg, sendfile, pread

        package func error(_ errno: CInt) -> SystemError { SystemError(rawValue, errno: errno) }
    }

    /// How long to wait for a kernel without memory.
    package static let shortageSeconds = 0.01

    /// The kernel's answer to `connect`.
    package enum ConnectAnswer {
        case connected
        case inProgress
        case failed(SystemError)
    }

    /// Takes over an open, non-blocking descriptor.
    package init(adopting rawValue: CInt) {
        self.rawValue = rawValue
    }

    /// A new stream socket; one of Multipath TCP if that is wanted and the kernel has it.
    package convenience init(streamOf family: SocketAddress.Family, wantsMultipath: Bool = false) throws(SystemError) {
        let domain: CInt =
            switch family {
            case .ipv4: AF_INET
            case .ipv6: AF_INET6
            case .unix: AF_UNIX
            case .virtualMachine: AF_VSOCK
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

    /// Sends the parts one after the other, as far as there is room.
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

    package func connect(to address: SocketAddress) -> ConnectAnswer {
        let result = address.withSockaddr { Glibc.connect(rawValue, $0, $1) }
        if result == 0 { return .connected }
        // An interrupted connect goes on by itself (POSIX).
        return errno == EINPROGRESS || errno == EINTR ? .inProgress : .failed(SystemError("connect"))
    }

    /// The error that an event announced (`SO_ERROR`). Reading clears it.
    package func takeError(of call: String) -> SystemError? {
        var code: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(rawValue, SOL_SOCKET, SO_ERROR, &code, &size) == 0 else { return SystemError("getsockopt(SO_ERROR)") }
        return code == 0 ? nil : SystemError(call, errno: code)
    }

    /// Sends a FIN: no more bytes will follow.
    package func shutdownWriting() {
        _ = shutdown(rawValue, CInt(SHUT_WR))
    }

    package func close() {
        guard rawValue >= 0 else { return }
        // Linux releases the number even if close is interrupted: never call it twice.
        _ = Glibc.close(rawValue)
        leave()
    }

    /// Gives up the descriptor without closing it: it belongs to someone else.
    package func relinquish() {
        guard rawValue >= 0 else { return }
        leave()
    }

    private func leave() {
        rawValue = -1
        observer?.descriptorDidClose()
        observer = nil
    }

    // MARK: - Facts and options

    package var localAddress: SocketAddress? { address(getsockname) }
    package var remoteAddress: SocketAddress? { address(getpeername) }

    private func address(
        _ ask: (CInt, UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> CInt
    ) -> SocketAddress? {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let result = withUnsafeMutablePointer(to: &storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { ask(rawValue, $0, &length) }
        }
        return result == 0 ? SocketAddress(storage: &storage, length: length) : nil
    }

    /// True when both sides have agreed on Multipath TCP (RFC 8684): the socket is one of MPTCP, and has not
    /// fallen back.
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

    // `MPTCP_INFO_FLAG_FALLBACK` and `MPTCP_INFO_FLAG_REMOTE_KEY_RECEIVED` of linux/mptcp.h, whose macros
    // Swift does not import.
    private static let hasFallenBack: UInt32 = 1 << 0
    private static let hasPeersKey: UInt32 = 1 << 1

    /// Has small writes leave at once (`TCP_NODELAY`). Queued writes are put together here, so Nagle's
    /// algorithm would only add delay.
    package func setNoDelay() {
        setFlag(level: CInt(IPPROTO_TCP), option: TCP_NODELAY)
    }

    func setFlag(level: CInt, option: CInt) {
        var on: CInt = 1
        _ = setsockopt(rawValue, level, option, &on, socklen_t(MemoryLayout<CInt>.size))
    }
}

// MARK: - Descriptors that someone else has made

extension SocketDescriptor {
    /// The peer of a connected TCP or Unix-domain stream. It does not change the descriptor.
    ///
    /// - Throws: EBADF, ENOTSOCK, ESOCKTNOSUPPORT for another type or protocol, EAFNOSUPPORT for another
    ///   family, ENOTCONN.
    package static func peerOfConnectedStream(_ rawValue: CInt) throws(SystemError) -> SocketAddress {
        // Borrowed, and left open.
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

    /// Throws unless the socket listens for streams that this library has sockets for. It does not change the
    /// descriptor.
    ///
    /// - Throws: EBADF, ENOTSOCK, ESOCKTNOSUPPORT for another type or protocol, EAFNOSUPPORT for another
    ///   family, EINVAL when it does not listen.
    package static func checkListening(_ rawValue: CInt) throws(SystemError) {
        // Borrowed, and left open.
        let descriptor = SocketDescriptor(adopting: rawValue)
        defer { descriptor.relinquish() }
        guard try descriptor.option(SO_TYPE, "SO_TYPE") == CInt(SOCK_STREAM.rawValue) else {
            throw SystemError("getsockopt(SO_TYPE)", errno: ESOCKTNOSUPPORT, detail: "it is not a stream socket")
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
            throw SystemError("getsockopt(SO_ACCEPTCONN)", errno: EINVAL, detail: "it is not listening")
        }
    }

    /// Takes over an open socket, and makes it non-blocking and close-on-exec.
    package convenience init(takingOver rawValue: CInt) {
        // No call fails for an open socket (fcntl(2)).
        _ = fcntl(rawValue, F_SETFD, FD_CLOEXEC)
        _ = fcntl(rawValue, F_SETFL, fcntl(rawValue, F_GETFL) | CInt(SOCK_NONBLOCK.rawValue))
        self.init(adopting: rawValue)
    }

    /// The number behind an option of `SOL_SOCKET`.
    func option(_ option: CInt, _ name: String) throws(SystemError) -> CInt {
        var value: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(rawValue, SOL_SOCKET, option, &value, &size) == 0 else { throw SystemError("getsockopt(\(name))") }
        return value
    }
}
