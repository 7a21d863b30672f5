extension Duration {
    /// A number of seconds, for clocks that count in them.
    package var inSeconds: Double {
        Double(components.seconds) + Double(components.attoseconds) / 1e18
    }
}
