// Rules for the file of a Unix-domain listener:
//  1. To free its path, a listener removes only a dead socket, meaning that connecting fails with
//     ECONNREFUSED. Any other file is kept, and the error describes it.
//  2. Between `bind` and `listen`, a new socket also looks dead. A listener therefore holds an advisory lock
//     (`flock`) on the directory from the first check until it listens. Before removing a file, it verifies
//     that the file is still the one it checked.
//  3. It tries to acquire the lock for a short time only. If another process keeps the lock or the directory
//     cannot be read, it continues without the lock, as other servers do.
//  4. The file is removed before the listener's descriptor is closed, so that no other process can consider
//     the socket dead and replace the file. The file is removed only if it is still the listener's file,
//     with the same device and inode.

internal import CLinux
internal import Glibc

/// The file that a Unix-domain listener creates, and removes when it closes.
package final class UnixSocketFile: Sendable {
    /// A file as another process knows it.
    package struct Place: Codable, Sendable {
        let path: String
        let device: UInt64
        let inode: UInt64
    }

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

    /// A file that another process created.
    convenience init(_ place: Place) {
        self.init(
            place.path.utf8.map { CChar(bitPattern: $0) } + [0], Identity(device: dev_t(place.device), inode: ino_t(place.inode)))
    }

    package var place: Place {
        Place(path: Self.text(path), device: UInt64(identity.device), inode: UInt64(identity.inode))
    }

    /// Removes the file, unless another file has replaced it.
    package func remove() {
        guard Self.look(at: path).map(Self.identity) == identity else { return }
        unlink(path)
    }

    /// Removes a dead socket at `address` and calls `listen` to bind and listen. Returns `nil` if the
    /// address has no file.
    static func make(
        for address: SocketEndpoint, _ listen: () throws(SystemError) -> Void
    ) throws(SystemError) -> UnixSocketFile? {
        guard let name = pathBytes(of: address) else {
            try listen()
            return nil
        }
        // Absolute, because the working directory may have changed by the time the file is removed.
        let path = absolute(name)
        return try whileHoldingLock(onDirectoryOf: path) { () throws(SystemError) in
            try clear(path, address)
            try listen()
            return look(at: path).map { UnixSocketFile(path, identity($0)) }
        }
    }

    /// Calls `body` while no listener of this library is between `bind` and `listen` at `address`, so that a
    /// refused connection means that no process listens.
    static func whileStable<Result>(
        at address: SocketEndpoint, _ body: () throws(SystemError) -> Result
    ) throws(SystemError) -> Result {
        guard let name = pathBytes(of: address) else { return try body() }
        return try whileHoldingLock(onDirectoryOf: absolute(name), body)
    }

    // MARK: - Clearing the path

    /// Removes a dead socket.
    ///
    /// - Parameter expectSilence: Throws if the socket is in use. Tests replace the file during this call.
    static func clear(
        _ path: [CChar], _ address: SocketEndpoint,
        expectSilence: ([CChar], SocketEndpoint) throws(SystemError) -> Void = UnixSocketFile.expectSilence
    ) throws(SystemError) {
        guard let file = look(at: path) else { return }
        guard file.st_mode & S_IFMT == S_IFSOCK else { throw occupied(path, by: "\(kind(of: file)) exists at this path") }
        try expectSilence(path, address)
        // Another process may have created a new file in the meantime.
        guard look(at: path).map(identity) == identity(file) else {
            throw occupied(path, by: "another process replaced or removed the socket at this path")
        }
        guard unlink(path) == 0 || errno == ENOENT else { throw SystemError("unlink") }
    }

    /// Throws unless the connection is refused or the file no longer exists.
    static func expectSilence(at path: [CChar], _ address: SocketEndpoint) throws(SystemError) {
        switch try SocketDescriptor(streamOf: .unix).connect(to: address) {
        case .failed(let error) where error.errno == ECONNREFUSED || error.errno == ENOENT: return
        case .failed(let error) where error.errno != EAGAIN && error.errno != EPROTOTYPE:
            throw occupied(path, by: "a socket exists at this path, but connecting to it failed (\(error))")
        case .connected, .inProgress, .failed: throw occupied(path, by: "the socket at this path is in use")
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
        SystemError("bind", errno: EADDRINUSE, detail: "\"\(text(path))\": \(sentence)")
    }

    // MARK: - The path

    /// Returns the path with a terminating zero. Returns `nil` for an abstract or unnamed address and for
    /// other families.
    private static func pathBytes(of address: SocketEndpoint) -> [CChar]? {
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
        // Closing the descriptor releases the lock.
        defer { if directory >= 0 { close(directory) } }
        let deadline = Deadline(after: lockTimeout)
        while directory >= 0, flock(directory, LOCK_EX | LOCK_NB) != 0, errno == EWOULDBLOCK || errno == EINTR,
            deadline.map({ Deadline.now < $0 }) == true
        {
            sched_yield()
        }
        return try body()
    }

    /// In seconds. A process holds the lock for only about 10 µs, unless it is preempted while holding it.
    private static let lockTimeout = 0.25
}
