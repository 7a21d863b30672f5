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
