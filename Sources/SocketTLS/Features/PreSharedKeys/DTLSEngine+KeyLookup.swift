extension DTLSEngine {
    /// Resolves `.awaitingSettings` for a pre-shared key. Call `handshake()` afterwards.
    package func choose(_ key: KeyAnswer) {
        guard let lookup = keyLookup, lookup.isAsked else { return }
        // Releases the copies of the datagrams with the identity.
        keyLookup = nil
        switch key {
        case .found(let key):
            engine.facts.preSharedKeys?.lookedUp = key
            for datagram in lookup.held { datagram.withUnsafeBytes { receive($0) } }
        case .failed(let reason):
            engine.course.fail(
                TLSError(.invalidSettings, "the pre-shared key cannot be looked up: \(reason)", operation: "TLSPreSharedKeys"))
        }
    }
}
