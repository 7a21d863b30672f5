import Glibc
import Testing

/// A listening socket whose backlog is full and which no one accepts from: the kernel drops further SYNs.
final class FullBacklog {
    let port: UInt16
    private var descriptors: [CInt] = []

    init() throws {
        let listener = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        descriptors.append(listener)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        try #require(Self.withSockaddr(&address) { bind(listener, $0, $1) } == 0)
        try #require(listen(listener, 0) == 0)
        var bound = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let named = withUnsafeMutablePointer(to: &bound) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(listener, $0, &length) }
        }
        try #require(named == 0)
        port = UInt16(bigEndian: bound.sin_port)
        for _ in 0..<4 {
            let client = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0)
            _ = Self.withSockaddr(&bound) { connect(client, $0, $1) }
            descriptors.append(client)
        }
    }

    deinit {
        for descriptor in descriptors { close(descriptor) }
    }

    private static func withSockaddr(_ address: inout sockaddr_in, _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
        withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
        }
    }
}
