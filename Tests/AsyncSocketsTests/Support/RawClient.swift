import AsyncSockets
import FoundationEssentials
import Glibc
import Testing

/// A client that is a descriptor and nothing more, so that what it sees is what the kernel says.
final class RawClient {
    private let descriptor: CInt

    /// Connects, and returns when the connection stands: a listener's backlog is enough for that.
    init(to address: SocketAddress) throws {
        let domain = address.family == .unix ? AF_UNIX : address.family == .ipv4 ? AF_INET : AF_INET6
        descriptor = socket(domain, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        let result = address.data.withUnsafeBytes { bytes in
            connect(descriptor, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
        }
        if result != 0 { throw Refused(errno: errno) }
    }

    deinit { close(descriptor) }

    struct Refused: Error {
        let errno: CInt
    }

    func send(_ text: String) {
        _ = text.withCString { Glibc.send(descriptor, $0, strlen($0), CInt(MSG_NOSIGNAL)) }
    }

    /// What the peer sends next, at most 100 bytes; empty when it has closed the connection, in good order or not.
    func receive() throws -> String {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        try #require(poll(&entry, 1, 60_000) == 1, "nothing came for a minute")
        var bytes = [UInt8](repeating: 0, count: 100)
        let count = recv(descriptor, &bytes, bytes.count, 0)
        return String(decoding: bytes.prefix(max(count, 0)), as: UTF8.self)
    }

    /// True when the peer has nothing to say yet, not even goodbye.
    var isQuiet: Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 0
    }
}
