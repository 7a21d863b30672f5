extension DTLSEngine {
    /// Resolves `.awaitingSettings` for a pre-shared key. Call `handshake()` afterwards.
    package func choose(_ key: KeyAnswer) {
        guard keyLookup?.isAsked == true, let held = keyLookup?.finish() else { return }
        switch key {
        case .found(let key):
            engine.facts.preSharedKeys?.lookedUp = key
            for datagram in held { datagram.withUnsafeBytes { receive($0) } }
        case .failed(let reason):
            engine.course.fail(
                TLSError(.invalidSettings, "the pre-shared key cannot be looked up: \(reason)", operation: "TLSPreSharedKeys"))
        }
    }
}
