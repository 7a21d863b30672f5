package import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// The owner of one socket, made with system calls alone. Its calls block until they are done or patience is
/// out.
///
/// It shares no code with the library but `SocketAddress`, so a test sees through it what the kernel says.
/// The descriptor blocks, as socket(2) makes it: the calls here wait with poll(2), and then do not block.
///
/// Reading and writing may happen on two threads; the descriptor is closed with the last reference, so no one
/// polls a number that has been given to another file.
package final class RawSocket: Sendable {
    package let descriptor: Int32
    let patience: Patience

    init(owning descriptor: Int32, patience: Patience) {
        self.descriptor = descriptor
        self.patience = patience
    }

    deinit { close(descriptor) }

    /// Another descriptor of the same socket, which belongs to the caller and stays open in child processes.
    package func duplicate() -> Int32 { dup(descriptor) }

    // MARK: - Addresses

    package var localAddress: SocketAddress {
        get throws(LoopbackError) { try Self.localAddress(of: descriptor) }
    }

    package var localPort: UInt16 {
        get throws(LoopbackError) { try localAddress.port ?? 0 }
    }

    package var peerAddress: SocketAddress {
        get throws(LoopbackError) { try Self.address(of: descriptor, "getpeername", getpeername) }
    }

    /// The address of any socket, by its descriptor.
    package static func localAddress(of descriptor: Int32) throws(LoopbackError) -> SocketAddress {
        try address(of: descriptor, "getsockname", getsockname)
    }

    private static func address(
        of descriptor: Int32, _ call: String,
        _ ask: (Int32, UnsafeMutablePointer<sockaddr>?, UnsafeMutablePointer<socklen_t>?) -> Int32
    ) throws(LoopbackError) -> SocketAddress {
        // As large as a `sockaddr_storage`, and aligned like one.
        var storage = [UInt64](repeating: 0, count: 16)
        var length: socklen_t = 128
        let answer = storage.withUnsafeMutableBytes {
            ask(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
        }
        guard answer == 0 else { throw .system(call) }
        let data = storage.withUnsafeBytes { Data($0.prefix(Int(length))) }
        guard let address = SocketAddress(data: data) else { throw .system(call, EAFNOSUPPORT) }
        return address
    }

    // MARK: - Receiving

    /// True when bytes, the end or a connection to accept are there. It does not wait.
    package var hasInput: Bool {
        var question = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&question, 1, 0) == 1
    }

    /// Waits for bytes and answers all there are, 64 KiB at most; an empty array means that the other side
    /// has ended (FIN).
    package func receive() throws(LoopbackError) -> [UInt8] {
        while true {
            try patience.wait(for: Int16(POLLIN), on: descriptor, "receive")
            var count = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: 65_536) { buffer, filled in
                count = recv(descriptor, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT))
                filled = max(0, count)
            }
            if count >= 0 { return bytes }
            if errno != EAGAIN && errno != EINTR { throw .system("recv") }
        }
    }

    // MARK: - Sending and ending

    /// Sends everything, in one segment if it fits into one; `patience` is for this call alone.
    package func send(_ bytes: some Collection<UInt8>, patience: Patience? = nil) throws(LoopbackError) {
        let flags = Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)
        var rest = Array(bytes)[...]
        while !rest.isEmpty {
            let sent = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, flags) }
            if sent > 0 {
                rest = rest.dropFirst(sent)
            } else if errno == EAGAIN {
                try (patience ?? self.patience).wait(for: Int16(POLLOUT), on: descriptor, "send")
            } else if errno != EINTR {
                throw .system("send")
            }
        }
    }

    /// FIN: nothing more will be sent, but receiving goes on.
    package func finish() {
        _ = shutdown(descriptor, Int32(SHUT_WR))
    }

    /// RST instead of FIN, when the last reference goes.
    package func resetWhenClosed() {
        setOption(SO_LINGER, of: SOL_SOCKET, to: linger(l_onoff: 1, l_linger: 0))
    }

    /// Every `send` is a segment of its own (TCP_NODELAY).
    func sendAtOnce() {
        setOption(TCP_NODELAY, of: Int32(IPPROTO_TCP), to: Int32(1))
    }

    private func setOption<Value>(_ name: Int32, of level: Int32, to value: Value) {
        withUnsafeBytes(of: value) { bytes in
            _ = setsockopt(descriptor, level, name, bytes.baseAddress, socklen_t(bytes.count))
        }
    }
}
