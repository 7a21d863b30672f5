/// A look-up by the program that completes a client's settings before its handshake.
package struct SettingsLookUp: Sendable {
    package let timeout: Duration
    /// The error for a look-up that takes longer.
    package let timeoutError: TLSError
    let find: @Sendable () async -> Result<TLSSettingValues, TLSError>

    /// Returns the complete settings, or the reason why the connection must not be made.
    package func answer() async -> Result<TLSSettingValues, TLSError> { await find() }
}

/// Whether the server of a client's settings is known to support TLS.
package enum PromiseOfTLS: Sendable {
    /// The settings do not depend on it.
    case unknown
    /// The server has published records for TLS.
    case made
    /// The server has published no records.
    case absent(isRequired: Bool)
}
