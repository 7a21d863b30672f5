extension TLSSettingValues {
    /// Throws `invalidSettings` for a DTLS version, which requires datagrams.
    func validateForStreams() throws(TLSError) {
        try proof.validateForStreams()
        for version in [minimumVersion, policy.minimumVersion, maximumVersion].compactMap(\.self) where version.isForDatagrams {
            throw Self.invalid("\(version) requires a datagram transport: use a TLS version such as .tls12")
        }
    }

    /// Throws `invalidSettings` for settings that DTLS 1.2 does not support.
    func validateForDatagrams() throws(TLSError) {
        let oldest = max(minimumVersion, policy.minimumVersion)
        guard oldest <= .dtls12 else {
            throw Self.invalid(
                "only DTLS 1.2 is supported, but minimumVersion or the policy requires \(oldest): set it to .dtls12")
        }
        if let maximumVersion, maximumVersion < .tls12 { throw Self.invalid("\(maximumVersion) is older than DTLS 1.2") }
        try validateFeaturesForDatagrams()
    }
}
