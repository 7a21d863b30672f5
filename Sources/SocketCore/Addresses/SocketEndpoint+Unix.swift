internal import CLinux
internal import Glibc

// Addresses of Unix-domain sockets (unix(7)): a path in the file system, an abstract name, or unnamed.
extension SocketEndpoint {
    /// The maximum length of a path, in bytes of UTF-8: `sun_path` has 108 bytes, including the terminating
    /// zero.
    public static let maximumUnixPathBytes = 107

    /// The maximum length of an abstract name, in bytes of UTF-8: `sun_path` has 108 bytes, including the
    /// leading zero.
    public static let maximumAbstractNameBytes = 107

    /// Creates the address of a Unix-domain socket with a path.
    ///
    /// Returns `nil` if the path is empty, contains a zero byte, or is longer than `maximumUnixPathBytes`.
    /// Paths are never truncated.
    public init?(unixPath path: String) {
        guard !path.isEmpty, !path.utf8.contains(0), path.utf8.count <= Self.maximumUnixPathBytes else { return nil }
        self.init(sunPath: Array(path.utf8) + [0])
    }

    /// Creates the address of a Unix-domain socket with an abstract name (Linux only).
    ///
    /// An abstract name does not exist in any file system, and disappears when the last socket using it is
    /// closed. Any process of any user in the network namespace can connect to it. Returns `nil` if the name
    /// is empty or longer than `maximumAbstractNameBytes`.
    public init?(abstractName name: String) {
        guard !name.isEmpty, name.utf8.count <= Self.maximumAbstractNameBytes else { return nil }
        self.init(sunPath: [0] + Array(name.utf8))
    }

    private init?(sunPath: [UInt8]) {
        var storage = sockaddr_storage()
        storage.ss_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &storage) {
            UnsafeMutableRawBufferPointer(rebasing: $0[Self.pathOffset...]).copyBytes(from: sunPath)
        }
        self.init(storage: &storage, length: socklen_t(Self.pathOffset + sunPath.count))
    }

    /// Reads a complete `sun_path` of 108 bytes: a path up to the first zero byte or the end, an abstract
    /// name after a leading zero byte and without its trailing zero bytes, or only zero bytes for an unnamed
    /// socket.
    init?(pathRoom room: [UInt8]) {
        let path = room.prefix { $0 != 0 }
        let name = room.prefix((room.lastIndex { $0 != 0 } ?? -1) + 1)
        self.init(sunPath: path.isEmpty ? Array(name) : path + (path.count < room.count ? [0] : []))
    }

    /// The path of a Unix-domain socket. `nil` for an abstract name, an unnamed socket, and any other
    /// family.
    public var unixPath: String? {
        guard let bytes = sunPath, let first = bytes.first, first != 0 else { return nil }
        return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }

    /// The abstract name of a Unix-domain socket, without the leading zero byte. `nil` for any other
    /// address.
    ///
    /// Bytes that are not valid UTF-8 become replacement characters.
    public var abstractName: String? {
        guard let bytes = sunPath, bytes.count > 1, bytes.first == 0 else { return nil }
        return String(decoding: bytes.dropFirst(), as: UTF8.self)
    }

    /// The bytes after the family field, or `nil` if this is not a Unix-domain address.
    var sunPath: [UInt8]? {
        guard family == .unix else { return nil }
        return withUnsafeBytes(of: storage) { Array($0.prefix(Int(length)).dropFirst(Self.pathOffset)) }
    }

    private static let pathOffset = MemoryLayout<sockaddr_un>.offset(of: \.sun_path) ?? 2
}
