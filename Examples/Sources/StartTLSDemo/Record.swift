internal import ArgumentParser
internal import Foundation

/// The process between the two sides, which forwards and records every byte.
///
/// Uses only system calls, so that the evidence does not depend on the library.
struct Record: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Forwards one connection to a port and records its bytes.", shouldDisplay: false)

    @Option(help: "The port on 127.0.0.1 to forward the connection to.")
    var target: UInt16

    @Option(help: "The folder for the two recordings.")
    var folder: String

    @Option(help: "Bytes to inject after the server's go-ahead, in the same segment.")
    var injectResponse: String?

    @Option(help: "Bytes to inject after the client's STARTTLS, in the same segment.")
    var injectCommand: String?

    static let clientFile = "client-to-server"
    static let serverFile = "server-to-client"

    func run() throws {
        let listener = try RawSocket.listening()
        // The parent process reads the port.
        try FileHandle.standardOutput.write(contentsOf: Data("\(listener.localPort())\n".utf8))
        let client = try listener.accept(within: 30)
        let server = try RawSocket.connected(to: target)
        var upward = Tap(
            source: client, sink: server, file: "\(folder)/\(Self.clientFile)",
            trigger: "STARTTLS\r\n", injection: injectCommand)
        var downward = Tap(
            source: server, sink: client, file: "\(folder)/\(Self.serverFile)",
            trigger: "start TLS\r\n", injection: injectResponse)
        let deadline = Date().addingTimeInterval(30)
        while upward.isOpen || downward.isOpen, Date() < deadline {
            let ready = RawSocket.waitReadable([upward.isOpen ? client : nil, downward.isOpen ? server : nil], seconds: 1)
            if ready[0] { upward.passOn() }
            if ready[1] { downward.passOn() }
        }
        try upward.save()
        try downward.save()
    }
}

/// One direction of the connection.
private struct Tap {
    let source: RawSocket
    let sink: RawSocket
    let file: String
    let trigger: String
    var injection: String?
    private(set) var isOpen = true
    private var bytes: [UInt8] = []

    init(source: RawSocket, sink: RawSocket, file: String, trigger: String, injection: String?) {
        self.source = source
        self.sink = sink
        self.file = file
        self.trigger = trigger
        self.injection = injection
    }

    mutating func passOn() {
        var piece = source.receive()
        guard !piece.isEmpty else {
            sink.finish()
            isOpen = false
            return
        }
        if let text = injection, String(decoding: piece, as: UTF8.self).hasSuffix(trigger) {
            piece += Array(text.utf8)
            injection = nil
        }
        bytes += piece
        // Fails if the sink has closed. The source may still send, so keep recording.
        _ = sink.send(piece)
    }

    func save() throws {
        try Data(bytes).write(to: URL(fileURLWithPath: file))
    }
}
