/// The progress of a file transfer.
public struct TransferProgress: Sendable, Hashable, CustomStringConvertible {
    /// The number of bytes so far. When sending, the bytes accepted by the kernel or, on a secure connection,
    /// by TLS. When receiving, the bytes written to the file.
    public let bytesDone: Int
    /// The total number of bytes, or `nil` if the transfer continues to the end of the stream.
    public let total: Int?
    /// The rate over the last three seconds, or since the start if the transfer has been running for less
    /// time. It falls to 0 while no bytes are transferred.
    public let bytesPerSecond: Double

    /// Creates a progress value, for tests of code that displays it.
    public init(bytesDone: Int, total: Int?, bytesPerSecond: Double) {
        self.bytesDone = bytesDone
        self.total = total
        self.bytesPerSecond = bytesPerSecond
    }

    /// The completed fraction, from 0 to 1, or `nil` if the total is unknown.
    public var fraction: Double? {
        guard let total else { return nil }
        return total == 0 ? 1 : Double(bytesDone) / Double(total)
    }

    /// A human-readable line: "1.5 MiB of 6.0 MiB (25 %), 512.0 KiB/s".
    public var description: String {
        let whole = total.map { " of \(Self.text(Double($0)))" } ?? ""
        let percent = fraction.map { " (\(Int(min(max($0, 0), 1) * 100)) %)" } ?? ""
        return "\(Self.text(Double(bytesDone)))\(whole)\(percent), \(Self.text(bytesPerSecond))/s"
    }

    private static func text(_ bytes: Double) -> String {
        var (size, rest) = (bytes.isFinite ? max(bytes, 0) : 0, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][...])
        var unit = "bytes"
        while size >= 1024, let next = rest.popFirst() { (size, unit) = (size / 1024, next) }
        guard unit != "bytes" else { return "\(Int(size)) bytes" }
        let tenths = Int(min(size * 10, 1e18))
        return "\(tenths / 10).\(tenths % 10) \(unit)"
    }
}
