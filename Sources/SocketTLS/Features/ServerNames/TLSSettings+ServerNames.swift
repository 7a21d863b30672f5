extension TLSSettings where Side == TLSRole.Server {
    /// Settings for clients that request specific names (SNI). If `nil`, these settings apply to all clients.
    public var serverNames: TLSServerNames? {
        get { values.serverNames }
        set { values.serverNames = newValue }
    }
}
