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
        var rest = Array(bytes)[...]
        func number(_ bytes: ArraySlice<UInt8>) -> Int { bytes.reduce(0) { $0 << 8 | Int($1) } }
        guard rest.count >= 2 else { return }
        var behind = rest.dropFirst(2 + number(rest.prefix(2)))
        rest = rest.dropFirst(2).prefix(number(rest.prefix(2)))
        if behind.count >= 2 { byteCountOfBinders = behind.count }
        behind = behind.dropFirst(2)
        while let length = behind.first, behind.count > Int(length), binders.count < Self.limit {
            binders.append(Array(behind.dropFirst().prefix(Int(length))))
            behind = behind.dropFirst(1 + Int(length))
        }
        while rest.count >= 2, identities.count < Self.limit {
            let length = number(rest.prefix(2))
            // Behind the identity come the four bytes of its age.
            guard length > 0, rest.count >= 2 + length + 4 else { return }
            identities.append(Array(rest.dropFirst(2).prefix(length)))
            rest = rest.dropFirst(2 + length + 4)
        }
    }
}
