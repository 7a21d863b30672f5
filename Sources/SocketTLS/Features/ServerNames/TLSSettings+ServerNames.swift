extension TLSSettings where Side == TLSServer {
    /// Other settings for clients that ask for certain names (SNI); nil: these settings for all.
    public var serverNames: TLSServerNames? {
        get { values.serverNames }
        set { values.serverNames = newValue }
    }
}
