internal import SocketBuffers

enum EarlyData {
    case client(ClientEarlyData)
    case server(ServerEarlyData)
}

struct EarlyDataFacts {
    /// The number of early bytes that a server delivers before all other data.
    var byteCount = 0
    /// Whether a client did not send its early data because another application protocol was negotiated.
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
    /// Accepted bytes that have been neither delivered nor handled by the responder.
    let bytes = PreBuffer()
    /// The responder, which can reply before the handshake is complete. `nil` if the settings contain no
    /// responder, or if it has already decided.
    var responder: TLSEarlyDataResponder?
    var isAsking = false
    /// Whether OpenSSL has returned all early data.
    var isComplete = false
    var hasAnswered = false
    private var questions = 0
    private var countAtQuestion = 0

    private static let questionLimit = 16

    init(_ responder: TLSEarlyDataResponder?) {
        self.responder = responder
    }

    /// Returns the responder if it should be called now, because new bytes have arrived.
    func takeQuestion() -> TLSEarlyDataResponder? {
        guard let responder, !isComplete, questions < Self.questionLimit, bytes.count > countAtQuestion else { return nil }
        (isAsking, countAtQuestion) = (true, bytes.count)
        questions += 1
        return responder
    }
}
