package import AsyncSockets

extension AsyncSocket {
    /// The upgrade that a delegate hears of. An async test that writes `startTLS` gets the one that waits.
    package func beginTLS(settings: TLSSettings) throws(AsyncSocketError) {
        try startTLS(settings: settings)
    }
}
