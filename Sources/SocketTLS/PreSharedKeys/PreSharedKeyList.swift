/// The extension `pre_shared_key` of a ClientHello (RFC 8446, section 4.2.11).
struct PreSharedKeyList {
    /// Those that are looked up, in order; empty for bytes that OpenSSL refuses by itself.
    private(set) var identities: [[UInt8]] = []

    /// So many identities of a client are looked up: each one costs a call of the program's function.
    static let limit = 8

    init(_ bytes: some Collection<UInt8>) {
        var rest = Array(bytes)[...]
        func number(_ bytes: ArraySlice<UInt8>) -> Int { bytes.reduce(0) { $0 << 8 | Int($1) } }
        guard rest.count >= 2 else { return }
        rest = rest.dropFirst(2).prefix(number(rest.prefix(2)))
        while rest.count >= 2, identities.count < Self.limit {
            let length = number(rest.prefix(2))
            // Behind the identity come the four bytes of its age.
            guard length > 0, rest.count >= 2 + length + 4 else { return }
            identities.append(Array(rest.dropFirst(2).prefix(length)))
            rest = rest.dropFirst(2 + length + 4)
        }
    }
}
