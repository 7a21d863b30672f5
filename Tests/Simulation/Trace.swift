internal import Glibc

/// The history of a run. Two runs are the same if their digests are.
final class Trace: @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    private(set) var digest: UInt64 = 0xCBF2_9CE4_8422_2325
    /// Whether each line is printed.
    let isPrinted: Bool
    var describe: () -> String = { "" }

    init(isPrinted: Bool) {
        self.isPrinted = isPrinted
    }

    func add(_ event: StaticString, _ first: Int, _ second: Int = 0, _ third: Int = 0) {
        event.withUTF8Buffer { for byte in $0 { mix(UInt64(byte)) } }
        mix(UInt64(bitPattern: Int64(first)))
        mix(UInt64(bitPattern: Int64(second)))
        mix(UInt64(bitPattern: Int64(third)))
        if isPrinted { print("\(describe()) \(event) \(first) \(second) \(third)") }
    }

    /// Adds text that is printed, but does not belong to the digest.
    func note(_ text: @autoclosure () -> String) {
        if isPrinted { print("\(describe()) \(text())") }
    }

    private func mix(_ value: UInt64) {
        digest = (digest ^ value) &* 0x0000_0100_0000_01B3
        digest ^= digest >> 29
    }
}
