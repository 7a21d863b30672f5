// In a composite type, `append(to:)` passes every property through `add` or `leaveOut` and rebuilds the value
// from the results. The initializer requires every property, so a new property is a compile-time error until
// `append(to:)` handles it. This does not catch a variable with a default value, such as an optional, but
// `SettingScopeTests` does.

internal import COpenSSL
internal import Glibc

/// An unambiguous encoding of fields for a digest: different lists of fields never have the same bytes.
struct DigestFields {
    private(set) var bytes: [UInt8] = []
    let files: Files
    private var failure: TLSError?

    enum Files {
        /// By path and metadata, which are specific to this machine.
        case stamps
        /// By contents, which are the same in every process that has the file.
        case contents
    }

    init(_ files: Files = .stamps) {
        self.files = files
    }

    mutating func append(_ field: [UInt8]) {
        append(field.count)
        bytes += field
    }

    mutating func append(_ fields: [[UInt8]]) {
        append(fields.count)
        for field in fields { append(field) }
    }

    mutating func append(_ number: some FixedWidthInteger) {
        withUnsafeBytes(of: Int64(truncatingIfNeeded: number).bigEndian) { bytes += $0 }
    }

    /// Appends the contents of files. If they cannot be read, `digest()` throws.
    mutating func append(contents: () throws(TLSError) -> [[UInt8]]) {
        do throws(TLSError) {
            append(try contents())
        } catch {
            failure = failure ?? error
        }
    }

    /// Appends a value that is relevant to the digest, and returns it.
    mutating func add<Value: Digestible>(_ value: Value) -> Value {
        value.append(to: &self)
        return value
    }

    /// Returns a value that is not relevant to the digest.
    func leaveOut<Value>(_ value: Value) -> Value { value }

    /// Returns the SHA-256 digest. Throws if the contents of a file could not be read.
    func digest() throws(TLSError) -> [UInt8] {
        if let failure { throw failure }
        return Self.digest(of: bytes)
    }

    static func digest(of bytes: [UInt8]) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        SHA256(bytes, bytes.count, &digest)
        return digest
    }

    static func digest(_ append: (inout DigestFields) -> Void) -> [UInt8] {
        var fields = DigestFields()
        append(&fields)
        return digest(of: fields.bytes)
    }
}

protocol Digestible {
    func append(to fields: inout DigestFields)
}

extension Int: Digestible {
    func append(to fields: inout DigestFields) { fields.append(self) }
}

extension Bool: Digestible {
    func append(to fields: inout DigestFields) { fields.append(self ? 1 : 0) }
}

extension String: Digestible {
    func append(to fields: inout DigestFields) { fields.append(Array(utf8)) }
}

extension Optional: Digestible where Wrapped: Digestible {
    func append(to fields: inout DigestFields) {
        fields.append(self == nil ? 0 : 1)
        self?.append(to: &fields)
    }
}

extension Array: Digestible where Element: Digestible {
    func append(to fields: inout DigestFields) {
        fields.append(count)
        for element in self { element.append(to: &fields) }
    }
}

extension Set: Digestible where Element == [UInt8] {
    func append(to fields: inout DigestFields) { fields.append(sorted { $0.lexicographicallyPrecedes($1) }) }
}

extension TLSCertificate: Digestible {
    func append(to fields: inout DigestFields) { fields.append(derBytes) }
}

extension TLSIdentity: Digestible {
    /// The certificate determines the key. A stapled response does not prove anything to this side.
    func append(to fields: inout DigestFields) { certificateChain.append(to: &fields) }
}

/// A digest of everything that two connections must have in common for one to resume the other's session:
/// the name, the trust settings, the identity and the negotiable parameters.
///
/// A verdict on a certificate is valid only within its scope. A session used in another scope would apply
/// the verdict of one set of rules to another (CVE-2025-23419, CVE-2021-22890).
struct ResumptionScope: Hashable, Sendable {
    let digest: [UInt8]

    init(digest: [UInt8]) {
        self.digest = digest
    }
}

/// Detects changes to a file or directory by its path, device, inode, size and modification time. A missing
/// file also has a stamp.
package struct FileStamp: Hashable, Sendable {
    private let path: String
    private var device: UInt = 0
    private var inode: UInt = 0
    private var size = 0
    private var seconds = 0
    private var nanoseconds = 0

    package init(path: String) {
        self.path = path
        var facts = stat()
        guard stat(path, &facts) == 0 else { return }
        device = UInt(facts.st_dev)
        inode = UInt(facts.st_ino)
        size = Int(facts.st_size)
        seconds = facts.st_mtim.tv_sec
        nanoseconds = facts.st_mtim.tv_nsec
    }
}

extension FileStamp: Digestible {
    func append(to fields: inout DigestFields) {
        fields.append(Array(path.utf8))
        for number in [Int(bitPattern: device), Int(bitPattern: inode), size, seconds, nanoseconds] { fields.append(number) }
    }
}
