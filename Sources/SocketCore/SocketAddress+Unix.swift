internal import CLinux
internal import Glibc

extension SocketAddress {
    /// The most bytes that the path of a Unix-domain socket may have: the kernel has room for these and a zero (unix(7)).
    package static let longestUnixPath = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1

    /// The address of the Unix-domain socket at a path of the file system; nil when the path is empty, too long or has a zero in it.
    package init?(unixPath: String) {
        let path = Array(unixPath.utf8)
        guard !path.isEmpty, path.count <= Self.longestUnixPath, !path.contains(0) else { return nil }
        var storage = sockaddr_storage()
        storage.ss_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &storage) { bytes in
            UnsafeMutableRawBufferPointer(rebasing: bytes[Self.unixPathOffset...]).copyBytes(from: path)
        }
        self.init(storage: storage, length: socklen_t(Self.unixPathOffset + path.count + 1))
    }

    private static let unixPathOffset = MemoryLayout<sockaddr_un>.offset(of: \.sun_path) ?? 2

    /// The path in the file system, ending in a zero; nil for an address without one: other families, abstract and unnamed sockets.
    var unixPathBytes: [CChar]? {
        guard family == .unix, Int(length) > Self.unixPathOffset else { return nil }
        return withUnsafeBytes(of: storage) { bytes in
            let name = bytes[Self.unixPathOffset..<Int(length)].prefix { $0 != 0 }
            return name.isEmpty ? nil : name.map { CChar(bitPattern: $0) } + [0]
        }
    }
}
