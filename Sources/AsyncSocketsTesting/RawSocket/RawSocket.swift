package import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// Owns one socket and uses it only through system calls. The methods block until they complete or the wait
/// limit is reached.
///
/// The type shares only `SocketEndpoint` with the library, so tests see what the kernel reports. The
/// descriptor is blocking, which is the default of socket(2). The methods wait with poll(2), so the system
/// calls themselves do not block.
///
/// One thread may read while another writes. The descriptor is closed when the last reference is released,
/// so no thread polls a descriptor number that has been reused.
package final class RawSocket: Sendable {
    package let descriptor: Int32
    let waitLimit: WaitLimit

    package init(owning descriptor: Int32, waitLimit: WaitLimit) {
        self.descriptor = descriptor
        self.waitLimit = waitLimit
    }

    deinit { close(descriptor) }

    /// Returns a duplicate of the descriptor. The caller owns it, and child processes inherit it.
    package func duplicate() -> Int32 { dup(descriptor) }

    // MARK: - Addresses

    package var localAddress: SocketEndpoint {
        get throws(LoopbackError) { try Self.localAddress(of: descriptor) }
    }

    package var localPort: UInt16 {
        get throws(LoopbackError) { try localAddress.port ?? 0 }
    }

    package var peerAddress: SocketEndpoint {
        get throws(LoopbackError) { try Self.address(of: descriptor, "getpeername", getpeername) }
    }

    package static func localAddress(of descriptor: Int32) throws(LoopbackError) -> SocketEndpoint {
        try address(of: descriptor, "getsockname", getsockname)
    }

    private static func address(
        of descriptor: Int32, _ call: String,
        _ ask: (Int32, UnsafeMutablePointer<sockaddr>?, UnsafeMutablePointer<socklen_t>?) -> Int32
    ) throws(LoopbackError) -> SocketEndpoint {
        // As large as a `sockaddr_storage`, and sufficiently aligned.
        var storage = [UInt64](repeating: 0, count: 16)
        var length: socklen_t = 128
        let answer = storage.withUnsafeMutableBytes {
            ask(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
        }
        guard answer == 0 else { throw .system(call) }
        let data = storage.withUnsafeBytes { Data($0.prefix(Int(length))) }
        guard let address = SocketEndpoint(data: data) else { throw .system(call, EAFNOSUPPORT) }
        return address
    }

    // MARK: - Receiving

    /// Whether there are bytes to read, a FIN or a connection to accept. Does not wait.
    package var hasInput: Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 1
    }

    /// Receives all available bytes, at most 64 KiB. Blocks until at least one byte is available. An empty
    /// array means that the other side sent FIN.
    package func receive() throws(LoopbackError) -> [UInt8] {
        while true {
            try waitLimit.wait(for: Int16(POLLIN), on: descriptor, "receive")
            var count = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: 65_536) { buffer, filled in
                count = recv(descriptor, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT))
                filled = max(0, count)
            }
            if count >= 0 { return bytes }
            if errno != EAGAIN && errno != EINTR { throw .system("recv") }
        }
    }

    // MARK: - Sending and closing

    /// Sends all bytes, in one segment if they fit. `waitLimit` applies only to this call.
    package func send(_ bytes: some Collection<UInt8>, waitLimit: WaitLimit? = nil) throws(LoopbackError) {
        let flags = Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)
        var rest = Array(bytes)[...]
        while !rest.isEmpty {
            let sent = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, flags) }
            if sent > 0 {
                rest = rest.dropFirst(sent)
            } else if errno == EAGAIN {
                try (waitLimit ?? self.waitLimit).wait(for: Int16(POLLOUT), on: descriptor, "send")
            } else if errno != EINTR {
                throw .system("send")
            }
        }
    }

    /// Sends FIN. The socket can still receive.
    package func finish() {
        _ = shutdown(descriptor, Int32(SHUT_WR))
    }

    /// Makes the socket send RST instead of FIN when its last reference is released.
    package func resetWhenClosed() {
        setOption(SO_LINGER, of: SOL_SOCKET, to: linger(l_onoff: 1, l_linger: 0))
    }

    /// Sends the data of every `send` immediately as a separate segment (TCP_NODELAY).
    func sendAtOnce() {
        setOption(TCP_NODELAY, of: Int32(IPPROTO_TCP), to: Int32(1))
    }

    private func setOption<Value>(_ name: Int32, of level: Int32, to value: Value) {
        withUnsafeBytes(of: value) { bytes in
            _ = setsockopt(descriptor, level, name, bytes.baseAddress, socklen_t(bytes.count))
        }
    }
}
