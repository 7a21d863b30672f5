struct StapledResponse: Hashable, Sendable {
    let bytes: [UInt8]
    /// When the response expires, in seconds since 1970.
    let end: Int
}
