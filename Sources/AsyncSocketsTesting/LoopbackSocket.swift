internal import Glibc

/// The owner of one TCP socket on 127.0.0.1. Its calls block until they are done or the wait limit is
/// reached.
///
/// Two threads may read and write. The descriptor closes with the last reference, so no one polls a number
/// that belongs to another file.
final class LoopbackSocket: Sendable {
    private let descriptor: Int32
    let waitLimit: WaitLimit

    private init(descriptor: Int32, waitLimit: WaitLimit) {
        self.descriptor = descriptor
        self.waitLimit = waitLimit
    }

    deinit { close(descriptor) }

    private static func make(waitLimit: WaitLimit) throws(LoopbackError) -> LoopbackSocket {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        guard descriptor >= 0 else { throw .system("socket") }
        return LoopbackSocket(descriptor: descriptor, waitLimit: waitLimit)
    }

    /// Listens on a port that the system chooses.
    static func listening(waitLimit: WaitLimit) throws(LoopbackError) -> LoopbackSocket {
        let listener = try make(waitLimit: waitLimit)
        let bound = withLoopbackAddress(port: 0) { bind(listener.descriptor, $0, $1) }
        guard bound == 0 else { throw .system("bind") }
        guard listen(listener.descriptor, 8) == 0 else { throw .system("listen") }
        return listener
    }

    static func connected(toPort port: UInt16, waitLimit: WaitLimit) throws(LoopbackError) -> LoopbackSocket {
        let socket = try make(waitLimit: waitLimit)
        let answer = withLoopbackAddress(port: port) { connect(socket.descriptor, $0, $1) }
        guard answer == 0 || errno == EINPROGRESS || errno == EINTR else { throw .system("connect") }
        try waitLimit.wait(for: Int16(POLLOUT), on: socket.descriptor, "connect")
        var failure: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        guard getsockopt(socket.descriptor, SOL_SOCKET, SO_ERROR, &failure, &length) == 0 else { throw .system("getsockopt") }
        guard failure == 0 else { throw .system("connect", failure) }
        socket.sendAtOnce()
        return socket
    }

    var localPort: UInt16 {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutableBytes(of: &address) { bytes in
            getsockname(descriptor, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
        }
        return UInt16(bigEndian: address.sin_port)
    }

    func accepted() throws(LoopbackError) -> LoopbackSocket {
        while true {
            try waitLimit.wait(for: Int16(POLLIN), on: descriptor, "accept")
            let accepted = accept(descriptor, nil, nil)
            if accepted < 0 && [EAGAIN, EINTR, ECONNABORTED].contains(errno) { continue }
            guard accepted >= 0 else { throw .system("accept") }
            _ = fcntl(accepted, F_SETFD, FD_CLOEXEC)
            _ = fcntl(accepted, F_SETFL, O_NONBLOCK)
            let socket = LoopbackSocket(descriptor: accepted, waitLimit: waitLimit)
            socket.sendAtOnce()
            return socket
        }
    }

    /// Waits for bytes and returns all that have come, at most 64 KiB; an empty array means that the other
    /// side has ended (FIN).
    func receive() throws(LoopbackError) -> [UInt8] {
        while true {
            try waitLimit.wait(for: Int16(POLLIN), on: descriptor, "receive")
            var count = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: 65536) { buffer, filled in
                count = recv(descriptor, buffer.baseAddress, buffer.count, 0)
                filled = max(0, count)
            }
            if count >= 0 { return bytes }
            if errno != EAGAIN && errno != EINTR { throw .system("recv") }
        }
    }

    /// Sends all bytes, in one segment if they fit.
    func send(_ bytes: some Collection<UInt8>) throws(LoopbackError) {
        var rest = Array(bytes)[...]
        while !rest.isEmpty {
            let sent = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if sent > 0 {
                rest = rest.dropFirst(sent)
            } else if errno == EAGAIN {
                try waitLimit.wait(for: Int16(POLLOUT), on: descriptor, "send")
            } else if errno != EINTR {
                throw .system("send")
            }
        }
    }

    /// Sends FIN: this side sends no more, but goes on receiving.
    func finish() {
        _ = shutdown(descriptor, Int32(SHUT_WR))
    }

    /// Makes the last reference send RST instead of FIN.
    func resetWhenClosed() {
        setOption(SO_LINGER, of: SOL_SOCKET, to: linger(l_onoff: 1, l_linger: 0))
    }

    /// Makes every `send` a separate segment (TCP_NODELAY).
    private func sendAtOnce() {
        setOption(TCP_NODELAY, of: Int32(IPPROTO_TCP), to: Int32(1))
    }

    private func setOption<Value>(_ name: Int32, of level: Int32, to value: Value) {
        withUnsafeBytes(of: value) { bytes in
            _ = setsockopt(descriptor, level, name, bytes.baseAddress, socklen_t(bytes.count))
        }
    }

    private static func withLoopbackAddress(
        port: UInt16, _ body: (UnsafePointer<sockaddr>?, socklen_t) -> Int32
    ) -> Int32 {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        return withUnsafeBytes(of: address) { bytes in
            body(bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
        }
    }
}

extension LoopbackError {
    /// The last system call failed.
    static func system(_ operation: String, _ number: Int32 = errno) -> LoopbackError {
        let code: Code = number == ECONNRESET || number == EPIPE ? .reset : .systemFailed
        return LoopbackError(code, String(cString: strerror(number)) + ".", operation: operation, errorNumber: number)
    }
}
