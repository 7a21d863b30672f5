extension Unicode.Scalar {
    /// Whether the character is neither a control or format character nor a line or paragraph separator. The
    /// others could add lines to a log, change colors of a terminal or reorder what people read.
    package var isPrintable: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}
