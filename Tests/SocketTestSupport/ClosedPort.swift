internal import Glibc

/// A port that is taken, so that no one else gets it, but at which no one listens.
package final class ClosedPort {
    package let port: UInt16
    private let descriptor: Int32

    package init() throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        self.descriptor = descriptor
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let answer = withUnsafeMutableBytes(of: &address) { bytes -> Int32 in
            let pointer = bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self)
            guard bind(descriptor, pointer, length) == 0 else { return -1 }
            return getsockname(descriptor, pointer, &length)
        }
        port = UInt16(bigEndian: address.sin_port)
        guard answer == 0 else { throw Unexpected(description: "no port: errno \(errno)") }
    }

    deinit { close(descriptor) }
}
