/// Extends a 32-bit kernel counter that wraps around to a total that does not.
package struct WrappingCount: Sendable {
    package private(set) var total = 0
    private var last: UInt32 = 0

    package init() {}

    /// - Parameter count: The kernel's counter, which must not have advanced by more than half of its range
    ///   since the last call. An older value has no effect.
    package mutating func note(_ count: UInt32) {
        let step = count &- last
        guard step <= UInt32.max / 2 else { return }
        total += Int(step)
        last = count
    }
}
