/// The extension `pre_shared_key` of a ClientHello (RFC 8446, section 4.2.11).
struct PreSharedKeyList {
    /// Those that are looked up, in order; empty for bytes that OpenSSL refuses by itself.
    private(set) var identities: [[UInt8]] = []
    /// The proof for each of them.
    private(set) var binders: [[UInt8]] = []
    /// The length of all proofs, and of the field with it: the last bytes of a ClientHello.
    private(set) var byteCountOfBinders = 0

    /// So many identities of a client are looked up: each one costs a call of the program's function.
    static let limit = 8

    init(_ bytes: some Collection<UInt8>) {
        Array(bytes).withUnsafeBytes { read(FieldReader($0)) }
    }

    private mutating func read(_ reader: FieldReader) {
        var reader = reader
        guard let list = reader.field(lengthOf: 2) else { return }
        if reader.rest.count >= 2 { byteCountOfBinders = reader.rest.count }
        var proofs = FieldReader(reader.rest.dropFirst(2))
        while binders.count < Self.limit, let binder = proofs.field(lengthOf: 1) { binders.append(Array(binder)) }
        var offers = FieldReader(list)
        // Behind the identity come the four bytes of its age.
        while identities.count < Self.limit, let identity = offers.field(lengthOf: 2), !identity.isEmpty, offers.bytes(4) != nil {
            identities.append(Array(identity))
        }
    }
}
