import FoundationEssentials
import Glibc
import SocketCore
import SocketTestSupport
import Testing

/// A blocking stream socket made with system calls alone, for the other end of a connection; closed with its
/// owner.
final class RawSocket: Sendable {
    let descriptor: CInt

    init(owning descriptor: CInt) throws {
        try #require(descriptor >= 0, "errno \(errno)")
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }

    private convenience init(_ family: SocketAddress.Family, flags: CInt = 0) throws {
        let domain = family == .unix ? AF_UNIX : family == .ipv6 ? AF_INET6 : AF_INET
        try self.init(owning: socket(domain, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue) | flags, 0))
    }

    /// Bound to an address, and not listening: what connects there is refused, and no one else gets the port.
    static func refusing(_ host: String = "127.0.0.1") throws -> RawSocket {
        try bound(to: try #require(SocketAddress(literal: host, port: 0)))
    }

    /// A port that no one has, on any address, and which the kernel gives to no one: it lies below those that
    /// it chooses from.
    static func freePort() throws -> UInt16 {
        for port in UInt16.random(in: 20_000..<30_000)..<32_000 {
            guard let any = SocketAddress(literal: "::", port: port) else { break }
            let holder = try RawSocket(.ipv6)
            if holder.call(bind, any) == 0 { return port }
        }
        throw Unexpected(description: "no free port")
    }

    static func listening(_ host: String = "127.0.0.1", backlog: CInt = 8) throws -> RawSocket {
        try listening(on: try #require(SocketAddress(literal: host, port: 0)), backlog: backlog)
    }

    static func listening(on address: SocketAddress, backlog: CInt = 8) throws -> RawSocket {
        let listener = try bound(to: address)
        try #require(listen(listener.descriptor, backlog) == 0)
        return listener
    }

    private static func bound(to address: SocketAddress) throws -> RawSocket {
        let raw = try RawSocket(address.family)
        try #require(raw.call(bind, address) == 0, "bind to \(address): errno \(errno)")
        return raw
    }

    static func connected(to address: SocketAddress) throws -> RawSocket {
        let raw = try RawSocket(address.family)
        try #require(raw.call(connect, address) == 0, "connect to \(address): errno \(errno)")
        return raw
    }

    /// Begins to connect and does not wait.
    static func connecting(to address: SocketAddress) throws -> RawSocket {
        let raw = try RawSocket(address.family, flags: CInt(SOCK_NONBLOCK.rawValue))
        _ = raw.call(connect, address)
        return raw
    }

    /// Waits for a connection.
    func accepted() throws -> RawSocket {
        try RawSocket(owning: accept(descriptor, nil, nil))
    }

    /// Another descriptor of the same socket, which belongs to the caller.
    func duplicate() -> CInt { dup(descriptor) }

    /// True when a connection waits to be accepted.
    var hasConnection: Bool {
        var question = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&question, 1, 0) == 1
    }

    var localAddress: SocketAddress { get throws { try address(getsockname) } }
    var peerAddress: SocketAddress { get throws { try address(getpeername) } }

    func send(_ text: String) {
        _ = Glibc.send(descriptor, text, text.utf8.count, CInt(MSG_NOSIGNAL))
    }

    /// Waits for `count` bytes, or the end.
    func receive(_ count: Int) -> String {
        var bytes = [UInt8](repeating: 0, count: count)
        let received = recv(descriptor, &bytes, count, CInt(MSG_WAITALL))
        return String(decoding: bytes.prefix(max(received, 0)), as: UTF8.self)
    }

    private func call(_ body: (CInt, UnsafePointer<sockaddr>?, socklen_t) -> CInt, _ address: SocketAddress) -> CInt {
        let data = address.data
        return data.withUnsafeBytes {
            body(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t(data.count))
        }
    }

    private func address(
        _ ask: (CInt, UnsafeMutablePointer<sockaddr>?, UnsafeMutablePointer<socklen_t>?) -> CInt
    ) throws -> SocketAddress {
        var storage = [UInt64](repeating: 0, count: 16)
        var length: socklen_t = 128
        let data = try storage.withUnsafeMutableBytes { bytes in
            try #require(ask(descriptor, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length) == 0)
            return Data(bytes.prefix(Int(length)))
        }
        return try #require(SocketAddress(data: data))
    }
}
