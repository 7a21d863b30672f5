extension GCDAsyncSocket {
    /// Returns the read stream. Linux has no Core Foundation streams.
    @available(*, unavailable, message: "Linux has no Core Foundation streams: use the socket's read methods")
    public func readStream() -> Unmanaged<CFReadStream>? { nil }
    /// Returns the write stream. Linux has no Core Foundation streams.
    @available(*, unavailable, message: "Linux has no Core Foundation streams: use the socket's write methods")
    public func writeStream() -> Unmanaged<CFWriteStream>? { nil }
    /// Enables backgrounding. Linux does not suspend programs in the background.
    @available(*, unavailable, message: "Linux does not suspend programs: remove this call")
    public func enableBackgroundingOnSocket() -> Bool { false }
    /// Connects to a Bonjour service. Linux has no NetService.
    @available(*, unavailable, message: "Linux has no NetService: resolve the service, and call connect(toHost:onPort:)")
    public func connect(to netService: NetService) throws {}
}
