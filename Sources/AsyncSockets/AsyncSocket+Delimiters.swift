public import FoundationEssentials

extension AsyncSocket {
    /// Carriage return and line feed (`crlfData()`), the end of a line in mail, HTTP and many other
    /// protocols: a delimiter for `readData(to:withTimeout:buffer:bufferOffset:maxLength:tag:)`.
    public static let crlf = Data([0x0D, 0x0A])
    /// Carriage return (`crData()`).
    public static let cr = Data([0x0D])
    /// Line feed (`lfData()`).
    public static let lf = Data([0x0A])
    /// A zero byte (`zeroData()`).
    public static let zero = Data([0x00])
}
