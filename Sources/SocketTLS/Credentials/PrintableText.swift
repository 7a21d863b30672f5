extension String {
    /// Text from the network as a message may show it: on one line, and not too long.
    var printable: String {
        let limit = 120
        var shown = String.UnicodeScalarView()
        for scalar in unicodeScalars.prefix(limit) {
            let isControl = scalar.properties.generalCategory == .control || scalar.properties.generalCategory == .format
            shown.append(isControl || scalar.value == 0x2028 || scalar.value == 0x2029 ? "\u{FFFD}" : scalar)
        }
        return String(shown) + (unicodeScalars.dropFirst(limit).isEmpty ? "" : "…")
    }
}
