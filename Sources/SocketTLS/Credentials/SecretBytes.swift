internal import COpenSSL
internal import Glibc

/// Bytes that are wiped before their memory is freed: keys, passphrases, and files that contain them.
final class SecretBytes {
    private let storage: UnsafeMutableRawBufferPointer

    /// - Parameter isTerminated: Whether to append a NUL.
    init(_ text: String, isTerminated: Bool = false) {
        let count = text.utf8.count
        storage = .allocate(byteCount: isTerminated ? count + 1 : count, alignment: 1)
        storage.copyBytes(from: text.utf8)
        if isTerminated { storage[count] = 0 }
    }

    init(copying bytes: [UInt8]) {
        storage = .allocate(byteCount: bytes.count, alignment: 1)
        storage.copyBytes(from: bytes)
    }

    init(count: Int, _ write: (UnsafeMutableRawBufferPointer) -> Void) {
        storage = .allocate(byteCount: count, alignment: 1)
        storage.initializeMemory(as: UInt8.self, repeating: 0)
        write(storage)
    }

    init(copying bytes: some Collection<UInt8>) {
        storage = .allocate(byteCount: bytes.count, alignment: 1)
        storage.copyBytes(from: bytes)
    }

    /// Creates `count` zero bytes, to be overwritten.
    init(count: Int) {
        storage = .allocate(byteCount: count, alignment: 1)
        storage.initializeMemory(as: UInt8.self, repeating: 0)
    }

    var writableBytes: UnsafeMutableRawBufferPointer { storage }

    /// Creates random bytes, for OpenSSL's callbacks. On failure, the reason stays in OpenSSL's error queue
    /// for the outer call.
    init?(randomCount count: Int) {
        storage = .allocate(byteCount: count, alignment: 1)
        guard RAND_priv_bytes(storage.baseAddress?.assumingMemoryBound(to: UInt8.self), Int32(count)) == 1 else { return nil }
    }

    private init(_ storage: UnsafeMutableRawBufferPointer) {
        self.storage = storage
    }

    deinit {
        OPENSSL_cleanse(storage.baseAddress, storage.count)
        storage.deallocate()
    }

    var count: Int { storage.count }

    /// Calls `body` with the bytes, and keeps this object alive until `body` returns.
    func withBytes<Result, Failure>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        defer { withExtendedLifetime(self) {} }
        return try body(UnsafeRawBufferPointer(storage))
    }

    /// The bytes, for a caller that keeps this object alive for as long as OpenSSL uses them.
    var keptBytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(storage) }

    /// A copy, which is not wiped.
    var copy: [UInt8] { withBytes { Array($0) } }

    /// Reads a whole file. Errors have the given `code`, which reflects the expected content.
    static func contents(ofFile path: String, or code: TLSError.Code) throws(TLSError) -> SecretBytes {
        // The system call would read the path only up to the NUL, and so open a different file.
        guard !path.utf8.contains(0) else {
            throw TLSError(code, "the path \"\(path.printable)\" contains a NUL character", operation: "open")
        }
        // Without O_NONBLOCK, opening a pipe would block until it has a writer.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
        guard descriptor >= 0 else { throw unreadable(path, errno, code) }
        defer { close(descriptor) }
        var facts = stat()
        guard fstat(descriptor, &facts) == 0 else { throw unreadable(path, errno, code) }
        guard facts.st_mode & S_IFMT == S_IFREG else {
            throw TLSError(code, "\"\(path.printable)\" is not a regular file", operation: "open")
        }
        guard facts.st_size <= sizeLimit else {
            throw TLSError(code, "\"\(path.printable)\" is larger than \(sizeLimit) bytes", operation: "open")
        }
        return try read(Int(facts.st_size), from: descriptor, path, code)
    }

    /// Far larger than any certificate bundle. The limit prevents a wrong path from exhausting memory.
    private static let sizeLimit = 64 * 1024 * 1024

    private static func read(
        _ size: Int, from descriptor: Int32, _ path: String, _ code: TLSError.Code
    ) throws(TLSError) -> SecretBytes {
        let secret = SecretBytes(.allocate(byteCount: size, alignment: 1))
        var filled = 0
        while filled < size {
            let taken = Glibc.read(descriptor, secret.storage.baseAddress.map { $0 + filled }, size - filled)
            if taken < 0, errno == EINTR { continue }
            guard taken > 0 else { throw unreadable(path, taken < 0 ? errno : EIO, code) }
            filled += taken
        }
        return secret
    }

    private static func unreadable(_ path: String, _ errorNumber: Int32, _ code: TLSError.Code) -> TLSError {
        let reason = String(cString: strerror(errorNumber))
        return TLSError(code, "\"\(path.printable)\" cannot be read: \(reason)", operation: "open")
    }
}
