/// A count of the kernel's that has 32 bits and begins again at zero, continued without end.
package struct WrappingCount: Sendable {
    package private(set) var total = 0
    private var last: UInt32 = 0

    package init() {}

    /// - Parameter count: The kernel's, which has not grown by more than half of its range since the last
    ///   one. An older one changes nothing.
    package mutating func note(_ count: UInt32) {
        let step = count &- last
        guard step <= UInt32.max / 2 else { return }
        total += Int(step)
        last = count
    }
}
