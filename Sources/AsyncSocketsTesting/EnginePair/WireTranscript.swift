/// All bytes on the wire, by direction.
public struct WireTranscript: Sendable, Hashable {
    /// The bytes sent by the side that connected.
    public var fromClient: [UInt8]
    /// The bytes sent by the side that accepted.
    public var fromServer: [UInt8]

    /// Creates a transcript, which is empty by default.
    public init(fromClient: [UInt8] = [], fromServer: [UInt8] = []) {
        self.fromClient = fromClient
        self.fromServer = fromServer
    }
}

extension WireTranscript {
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

/// A recording of the bytes that a scripted peer has sent and received so far.
final class WireRecording {
    private(set) var transcript = WireTranscript()
    private let side: WireTranscript.Side

    init(side: WireTranscript.Side) {
        self.side = side
    }

    func sent(_ bytes: some Sequence<UInt8>) {
        transcript.add(bytes, from: side)
    }

    func received(_ bytes: some Sequence<UInt8>) {
        transcript.add(bytes, from: side == .client ? .server : .client)
    }
}

final class RecordedWire {
    let socket: RawSocket
    private let recording: WireRecording

    init(_ socket: RawSocket, _ recording: WireRecording) {
        self.socket = socket
        self.recording = recording
    }

    func receive() throws(LoopbackError) -> [UInt8] {
        let bytes = try socket.receive()
        recording.received(bytes)
        return bytes
    }

    func send(_ bytes: some Collection<UInt8>) throws(LoopbackError) {
        try socket.send(bytes)
        recording.sent(bytes)
    }
}
