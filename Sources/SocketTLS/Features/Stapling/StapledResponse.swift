/// An OCSP response that a server staples to its certificate.
struct StapledResponse: Hashable, Sendable {
    let bytes: [UInt8]
    /// Seconds since 1970.
    let end: Int
}
