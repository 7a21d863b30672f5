// Rules for limits that a program sets:
//  1. Calls that can throw reject invalid values: initializers of listeners, calls with a length, and the
//     use of `TLSSettings`.
//  2. Otherwise the nearest valid value is used. A property of a socket or a listener returns that value.

extension Int {
    /// Returns the nearest number in `range`.
    package func clamped(to range: ClosedRange<Int>) -> Int {
        Swift.min(Swift.max(self, range.lowerBound), range.upperBound)
    }

    /// Returns the nearest number in `range`.
    package func clamped(to range: PartialRangeFrom<Int>) -> Int {
        Swift.max(self, range.lowerBound)
    }
}
