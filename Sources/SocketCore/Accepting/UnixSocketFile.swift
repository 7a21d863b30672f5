// Rules of the file of a Unix-domain listener:
//  1. Nothing is removed to make room but a socket on which no one answers: connecting to it gives
//     ECONNREFUSED. Whatever else is there stays, and the error says what it is.
//  2. Between `bind` and `listen` a new socket answers no one either. So that no other process takes it for a
//     dead one, all that a listener does from looking to listening is done under an advisory lock (`flock`)
//     on the directory, and that what is removed is what was looked at is checked again.
//  3. The lock is never waited for long. Without it, when someone else sits on it or the directory cannot be
//     read, things go on as in any other server.
//  4. The file goes when the listener does, and before its descriptor is closed, so that no one can have
//     taken it for dead meanwhile; but only if it is still the one that the listener made: same device, same
//     inode.

internal import CLinux
internal import Glibc

/// The name in the file system that a Unix-domain listener has made, and takes away again.
final class UnixSocketFile: Sendable {
    /// Which file a name stands for.
    private struct Identity: Hashable {
        let device: dev_t
        let inode: ino_t
    }

    private let path: [CChar]
    private let identity: Identity

    private init(_ path: [CChar], _ identity: Identity) {
        self.path = path
        self.identity = identity
    }

    /// Takes the name away, if it still stands for the same file.
    func remove() {
        guard Self.look(at: path).map(Self.identity) == identity else { return }
        unlink(path)
    }

    /// Has `listen` bind a socket to `address` and listen on it, after a dead socket there has been removed;
    /// nil when the address has no file.
    static func make(
        for address: SocketAddress, _ listen: () throws(SystemError) -> Void
    ) throws(SystemError) -> UnixSocketFile? {
        guard let name = pathBytes(of: address) else {
            try listen()
            return nil
        }
        // Absolute, since the working directory may be another one when the file is removed.
        let path = absolute(name)
        return try whileHoldingLock(onDirectoryOf: path) { () throws(SystemError) in
            try clear(path, address)
            try listen()
            return look(at: path).map { UnixSocketFile(path, identity($0)) }
        }
    }

    // MARK: - What is there

    /// Removes a dead socket.
    ///
    /// - Parameter expectSilence: Returns when no one answers on the socket there; a test lets something
    ///   happen meanwhile.
    static func clear(
        _ path: [CChar], _ address: SocketAddress,
        expectSilence: ([CChar], SocketAddress) throws(SystemError) -> Void = UnixSocketFile.expectSilence
    ) throws(SystemError) {
        guard let file = look(at: path) else { return }
        guard file.st_mode & S_IFMT == S_IFSOCK else { throw occupied(path, by: "there is \(kind(of: file)) already") }
        try expectSilence(path, address)
        // Someone may have put a new file there meanwhile.
        guard look(at: path).map(identity) == identity(file) else {
            throw occupied(path, by: "another socket has just appeared there")
        }
        guard unlink(path) == 0 || errno == ENOENT else { throw SystemError("unlink") }
    }

    /// Returns when no one answers on the socket there.
    static func expectSilence(at path: [CChar], _ address: SocketAddress) throws(SystemError) {
        switch try SocketDescriptor(streamOf: .unix).connect(to: address) {
        case .failed(let error) where error.errno == ECONNREFUSED || error.errno == ENOENT: return
        case .failed(let error) where error.errno != EAGAIN && error.errno != EPROTOTYPE:
            throw occupied(path, by: "there is a socket already, and whether it is in use cannot be found out (\(error))")
        case .connected, .inProgress, .failed: throw occupied(path, by: "there is a socket already, and it is in use")
        }
    }

    private static func look(at path: [CChar]) -> stat? {
        var file = stat()
        return lstat(path, &file) == 0 ? file : nil
    }

    private static func identity(_ file: stat) -> Identity {
        Identity(device: file.st_dev, inode: file.st_ino)
    }

    private static func kind(of file: stat) -> String {
        switch file.st_mode & S_IFMT {
        case S_IFREG: "a file"
        case S_IFDIR: "a directory"
        case S_IFLNK: "a symbolic link"
        case S_IFIFO: "a FIFO"
        default: "a device"
        }
    }

    private static func occupied(_ path: [CChar], by sentence: String) -> SystemError {
        SystemError("bind", errno: EADDRINUSE, detail: "\(text(path)) cannot be listened on: \(sentence)")
    }

    // MARK: - The name

    /// The path in the file system, ending in a zero; nil for an address without one: other families,
    /// abstract and unnamed sockets.
    private static func pathBytes(of address: SocketAddress) -> [CChar]? {
        guard let name = address.sunPath?.prefix(while: { $0 != 0 }), !name.isEmpty else { return nil }
        return name.map { CChar(bitPattern: $0) } + [0]
    }

    private static func text(_ path: [CChar]) -> String {
        String(decoding: path.dropLast().map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    private static func absolute(_ path: [CChar]) -> [CChar] {
        guard path.first != slash, let here = getcwd(nil, 0) else { return path }
        defer { free(here) }
        return Array(UnsafeBufferPointer(start: here, count: strlen(here))) + [slash] + path
    }

    private static let slash = CChar(bitPattern: UInt8(ascii: "/"))

    private static func whileHoldingLock<Result>(
        onDirectoryOf path: [CChar], _ body: () throws(SystemError) -> Result
    ) throws(SystemError) -> Result {
        let name = path.lastIndex(of: slash) ?? 0
        let directory = open(Array(path[..<name]) + [slash, 0], O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        // Closing the descriptor gives the lock back.
        defer { if directory >= 0 { close(directory) } }
        let patience = Deadline(after: lockPatience)
        while directory >= 0, flock(directory, LOCK_EX | LOCK_NB) != 0, errno == EWOULDBLOCK || errno == EINTR,
            patience.map({ Deadline.now < $0 }) == true
        {
            sched_yield()
        }
        return try body()
    }

    /// Seconds. Others hold the lock for some ten microseconds, but a busy machine may not let them run for a
    /// while.
    private static let lockPatience = 0.25
}
