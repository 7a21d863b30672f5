internal import CLinux
internal import Glibc

// Addresses of Unix-domain sockets (unix(7)): a path in the file system, an abstract name, or nothing.
extension SocketAddress {
    /// The longest path, in bytes of UTF-8: `sun_path` has 108, and the last is a zero.
    public static let longestUnixPath = 107

    /// The longest abstract name, in bytes of UTF-8: `sun_path` has 108, and the first is a zero.
    public static let longestAbstractName = 107

    /// The socket at a path; nil when it is empty, has a zero byte in it or is longer than `longestUnixPath`.
    /// A path is never cut.
    public init?(unixPath path: String) {
        guard !path.isEmpty, !path.utf8.contains(0), path.utf8.count <= Self.longestUnixPath else { return nil }
        self.init(sunPath: Array(path.utf8) + [0])
    }

    /// The socket with an abstract name, which is in no file system and vanishes with its last user (Linux
    /// only); nil when the name is empty or longer than `longestAbstractName`. Every process of every user in
    /// the network namespace may connect to it.
    public init?(abstractName name: String) {
        guard !name.isEmpty, name.utf8.count <= Self.longestAbstractName else { return nil }
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

    /// The content of a whole `sun_path` of 108 bytes: a path up to the first zero or the end of the room, an
    /// abstract name after a zero, without the zeros at its end, or nothing.
    init?(pathRoom room: [UInt8]) {
        let path = room.prefix { $0 != 0 }
        let name = room.prefix((room.lastIndex { $0 != 0 } ?? -1) + 1)
        self.init(sunPath: path.isEmpty ? Array(name) : path + (path.count < room.count ? [0] : []))
    }

    /// The path of a Unix-domain socket; nil for any other address, an abstract name and a socket without a
    /// name.
    public var unixPath: String? {
        guard let bytes = sunPath, let first = bytes.first, first != 0 else { return nil }
        return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }

    /// The abstract name of a Unix-domain socket, without the zero before it; nil for any other address.
    /// Bytes that are not UTF-8 become replacement characters.
    public var abstractName: String? {
        guard let bytes = sunPath, bytes.count > 1, bytes.first == 0 else { return nil }
        return String(decoding: bytes.dropFirst(), as: UTF8.self)
    }

    /// The bytes after the family; nil for an address of another family.
    var sunPath: [UInt8]? {
        guard family == .unix else { return nil }
        return withUnsafeBytes(of: storage) { Array($0.prefix(Int(length)).dropFirst(Self.pathOffset)) }
    }

    private static let pathOffset = MemoryLayout<sockaddr_un>.offset(of: \.sun_path) ?? 2
}
