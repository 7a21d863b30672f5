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

extension Duration {
    /// The duration in seconds, for clocks that count in seconds.
    package var inSeconds: Double {
        Double(components.seconds) + Double(components.attoseconds) / 1e18
    }
}

extension Unicode.Scalar {
    /// Whether the character is neither a control or format character nor a line or paragraph separator.
    /// Characters of these kinds can add lines to a log, change the colors of a terminal or reorder text.
    package var isPrintable: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}
