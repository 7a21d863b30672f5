/// How far the transfer of a file has come.
public struct TransferProgress: Sendable, Hashable, CustomStringConvertible {
    /// The bytes so far. Of a file that is sent, those that the kernel or, on a secure connection, TLS has
    /// taken; of one that is received, those that are in the file.
    public let bytesDone: Int
    /// The bytes of the whole; nil when it is as long as the stream.
    public let total: Int?
    /// The rate over the last three seconds, or since the beginning if that is not so long ago. It falls to 0
    /// while nothing moves.
    public let bytesPerSecond: Double

    /// A progress that you make yourself, for tests of code that shows it.
    public init(bytesDone: Int, total: Int?, bytesPerSecond: Double) {
        self.bytesDone = bytesDone
        self.total = total
        self.bytesPerSecond = bytesPerSecond
    }

    /// The part that is done, from 0 to 1; nil when the total is not known.
    public var fraction: Double? {
        guard let total else { return nil }
        return total == 0 ? 1 : Double(bytesDone) / Double(total)
    }

    /// One line for people: "1.5 MiB of 6.0 MiB (25 %), 512.0 KiB/s".
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
