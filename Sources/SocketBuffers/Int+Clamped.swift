// Rules for limits that a program sets:
//  1. What can throw, throws: initializers of listeners, calls with a length, and the use of `TLSSettings`.
//  2. What cannot throw, such as a property of a socket or a listener, takes the nearest valid value. Reading
//     the property returns that value.

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
