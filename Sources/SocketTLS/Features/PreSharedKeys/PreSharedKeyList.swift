/// The `pre_shared_key` extension of a ClientHello (RFC 8446, section 4.2.11).
struct PreSharedKeyList {
    /// The identities to look up, in order. Empty if the extension is malformed; OpenSSL then rejects it.
    private(set) var identities: [[UInt8]] = []
    private(set) var binders: [[UInt8]] = []
    /// The length of all binders, including their length field. They are the last bytes of a ClientHello.
    private(set) var byteCountOfBinders = 0

    /// The maximum number of identities to look up for a client: each one costs a call to the program's
    /// function.
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
        // Each identity is followed by its age (4 bytes).
        while identities.count < Self.limit, let identity = offers.field(lengthOf: 2), !identity.isEmpty, offers.bytes(4) != nil {
            identities.append(Array(identity))
        }
    }
}
