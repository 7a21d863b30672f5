import AsyncSockets
import FoundationEssentials
import Glibc
import Testing

/// A client that is a descriptor and nothing more, so that what it sees is what the kernel says.
final class RawClient {
    private let descriptor: CInt

    /// Connects, and returns when the connection is up: a listener's backlog is enough for that.
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

    /// Waits for `count` bytes, in however many pieces they come, or for the end: then fewer.
    func receive(count: Int = 1) throws -> String {
        var bytes: [UInt8] = []
        while bytes.count < count {
            var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            try #require(poll(&entry, 1, 60_000) == 1, "nothing came for a minute")
            var piece = [UInt8](repeating: 0, count: 100)
            let received = recv(descriptor, &piece, piece.count, 0)
            guard received > 0 else { break }
            bytes += piece.prefix(received)
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// True when the peer has nothing to say yet, not even goodbye.
    var isQuiet: Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 0
    }
}
