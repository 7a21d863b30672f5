extension Duration {
    /// The duration in seconds, for clocks that count in seconds.
    package var inSeconds: Double {
        Double(components.seconds) + Double(components.attoseconds) / 1e18
    }
}
