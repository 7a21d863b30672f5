/// What a scripted peer has sent and received so far.
final class WireRecording {
    private(set) var transcript = WireTranscript()
    private let side: WireTranscript.Side

    /// A recording by the peer on this side.
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

/// A socket all of whose bytes are written down.
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
