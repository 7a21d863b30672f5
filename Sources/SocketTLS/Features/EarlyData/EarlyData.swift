internal import SocketBuffers

/// The early data of one connection, until it is sent or delivered.
enum EarlyData {
    case client(ClientEarlyData)
    case server(ServerEarlyData)
}

/// The facts about early data that a session has.
struct EarlyDataFacts {
    /// How many bytes of it a server delivers first.
    var byteCount = 0
    /// A client has not sent it, since it is for another application protocol.
    var isWithheld = false
}

final class ClientEarlyData {
    enum Stage {
        /// To be sent with the ClientHello.
        case first
        case offered
        /// To be sent after the handshake.
        case later
    }

    let bytes: [UInt8]
    let applicationProtocol: String?
    var stage: Stage

    init(_ bytes: [UInt8], for applicationProtocol: String?, _ stage: Stage) {
        self.bytes = bytes
        self.applicationProtocol = applicationProtocol
        self.stage = stage
    }
}

final class ServerEarlyData {
    /// The bytes that were accepted, and are neither delivered nor answered.
    let bytes = PreBuffer()
    /// The responder that may answer before the handshake is complete; nil: none, or none any more.
    var responder: TLSEarlyDataResponder?
    /// The responder is at work.
    var isAsking = false
    /// OpenSSL has no more early data.
    var isComplete = false
    var hasAnswered = false
    private var questions = 0
    private var countAtQuestion = 0

    private static let questionLimit = 16

    init(_ responder: TLSEarlyDataResponder?) {
        self.responder = responder
    }

    /// The responder to ask, when there is something new to ask it about.
    func takeQuestion() -> TLSEarlyDataResponder? {
        guard let responder, !isComplete, questions < Self.questionLimit, bytes.count > countAtQuestion else { return nil }
        (isAsking, countAtQuestion) = (true, bytes.count)
        questions += 1
        return responder
    }
}
