// How a value is taken apart for a digest: `append(to:)` makes the value again, from what `add` and
// `leaveOut` return. The initializer names each of its properties, so a new one does not compile until it is
// placed. A variable with a default value, such as the nil of an optional, compiles, and `SettingScopeTests`
// finds it.

internal import COpenSSL

/// Fields in a form in which no two lists of fields are alike, for a digest.
struct DigestFields {
    private(set) var bytes: [UInt8] = []
    let files: Files
    private var failure: TLSError?

    /// How a file is represented.
    enum Files {
        /// Its name and date, which belong to this machine.
        case stamps
        /// Its contents: the same in every process that has it.
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

    /// Appends a value that counts, and returns it.
    mutating func add<Value: Digestible>(_ value: Value) -> Value {
        value.append(to: &self)
        return value
    }

    /// Returns a value that does not count.
    func leaveOut<Value>(_ value: Value) -> Value { value }

    /// SHA-256. Throws if the contents of a file could not be read.
    func digest() throws(TLSError) -> [UInt8] {
        if let failure { throw failure }
        return Self.digest(of: bytes)
    }

    /// SHA-256.
    static func digest(of bytes: [UInt8]) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        SHA256(bytes, bytes.count, &digest)
        return digest
    }

    /// SHA-256 of fields without files.
    static func digest(_ append: (inout DigestFields) -> Void) -> [UInt8] {
        var fields = DigestFields()
        append(&fields)
        return digest(of: fields.bytes)
    }
}

/// A value that can be taken apart for a digest.
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

extension Certificate: Digestible {
    func append(to fields: inout DigestFields) { fields.append(derBytes) }
}

extension TLSIdentity: Digestible {
    /// The key belongs to the certificate, and what is stapled to it proves nothing to this side.
    func append(to fields: inout DigestFields) { certificateChain.append(to: &fields) }
}
