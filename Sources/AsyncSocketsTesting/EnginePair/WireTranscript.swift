/// Every byte that was on the wire, by direction.
public struct WireTranscript: Sendable, Hashable {
    /// What the side that connected has sent.
    public var fromClient: [UInt8]
    /// What the side that was connected to has sent.
    public var fromServer: [UInt8]

    /// A transcript, empty unless you give the bytes.
    public init(fromClient: [UInt8] = [], fromServer: [UInt8] = []) {
        self.fromClient = fromClient
        self.fromServer = fromServer
    }
}

extension WireTranscript {
    /// Who sends.
    package enum Side: Sendable {
        case client
        case server
    }

    mutating func add(_ bytes: some Sequence<UInt8>, from side: Side) {
        switch side {
        case .client: fromClient += bytes
        case .server: fromServer += bytes
        }
    }
}
