/// The client side of LDAP (RFC 4511, section 4.14).
struct LDAPClient: ProtocolSide {
    var name: String { "LDAP" }
    var isClient: Bool { true }

    /// The request has the message ID 1.
    mutating func start() -> DialogueAction {
        let name = BERElement(0x80, Array(LDAP.startTLS.utf8))
        return .send(LDAP.message(id: 1, BERElement(LDAP.extendedRequest, name.encoded)))
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let message = try LDAP.takeMessage(from: &input, for: self) else { return nil }
        guard message.operation.tag == LDAP.extendedResponse, message.id <= 1, let result = LDAP.result(message.operation) else {
            throw error(.unexpectedMessage, "the server sent something other than the response to StartTLS")
        }
        // Message ID 0 is the server's notice of disconnection.
        guard message.id == 1 else { throw refusedConnection(result.text) }
        guard LDAP.belongsToStartTLS(message.operation) else {
            throw error(.unexpectedMessage, "the server sent the response to another request")
        }
        switch result.code {
        case 0: return .startTLS([])
        // protocolError: the server does not know the request.
        case 2: throw notOffered(result.text)
        default: throw error(.refused, "the server refused to start TLS with result code \(result.code)", line: result.text)
        }
    }
}

/// The server side of LDAP. Other operations are rejected with confidentialityRequired.
struct LDAPServer: ProtocolSide {
    var name: String { "LDAP" }
    var isClient: Bool { false }

    func quotablePart(of message: String) -> String? { nil }

    /// A notice of disconnection (RFC 4511, section 4.4.1).
    var farewell: [UInt8] { LDAP.noticeOfDisconnection }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let message = try LDAP.takeMessage(from: &input, for: self) else { return nil }
        switch message.operation.tag {
        case LDAP.extendedRequest:
            guard LDAP.isStartTLS(message.operation) else {
                return .send(LDAP.response(LDAP.extendedResponse, id: message.id, result: 2, "unknown extended request"))
            }
            return .startTLS(LDAP.response(LDAP.extendedResponse, id: message.id, result: 0, ""))
        case LDAP.unbindRequest: throw error(.closed, "the client logged out before TLS started")
        case LDAP.abandon: return .continue
        case let tag:
            guard let response = LDAP.responseTag(of: tag) else {
                throw error(.unexpectedMessage, "the client sent an unknown LDAP operation", reply: farewell)
            }
            return .send(LDAP.response(response, id: message.id, result: 13, "use StartTLS first"))
        }
    }
}

enum LDAP {
    static let startTLS = "1.3.6.1.4.1.1466.20037"
    static let extendedRequest: UInt8 = 0x77
    static let extendedResponse: UInt8 = 0x78
    static let unbindRequest: UInt8 = 0x42
    static let abandon: UInt8 = 0x50

    /// An extended response with message ID 0, the result protocolError and the name of the notice.
    static let noticeOfDisconnection: [UInt8] = {
        let name = BERElement(0x8A, Array("1.3.6.1.4.1.1466.20036".utf8))
        return message(id: 0, BERElement(extendedResponse, resultContents(2, "protocol error") + name.encoded))
    }()

    struct Message {
        let id: Int
        let operation: BERElement
    }

    static func message(id: Int, _ operation: BERElement) -> [UInt8] {
        BERElement(0x30, BERElement(integer: id).encoded + operation.encoded).encoded
    }

    static func response(_ tag: UInt8, id: Int, result: UInt8, _ text: String) -> [UInt8] {
        message(id: id, BERElement(tag, resultContents(result, text)))
    }

    private static func resultContents(_ result: UInt8, _ text: String) -> [UInt8] {
        BERElement(0x0A, [result]).encoded + BERElement(0x04, []).encoded + BERElement(0x04, Array(text.utf8)).encoded
    }

    /// Returns the result code and the diagnostic message of a response.
    static func result(_ response: BERElement) -> (code: UInt8, text: String)? {
        let parts = BERElement.sequence(response.contents) ?? []
        guard parts.count >= 3, parts[0].tag == 0x0A, parts[0].contents.count == 1, let code = parts[0].contents.first else {
            return nil
        }
        return (code, String(decoding: parts[2].contents, as: UTF8.self))
    }

    /// Whether an extended request has the object identifier of StartTLS.
    static func isStartTLS(_ request: BERElement) -> Bool {
        guard let name = BERElement.sequence(request.contents)?.first, name.tag == 0x80 else { return false }
        return name.contents.elementsEqual(startTLS.utf8)
    }

    /// Whether an extended response has the object identifier of StartTLS, or no identifier at all.
    static func belongsToStartTLS(_ response: BERElement) -> Bool {
        let name = BERElement.sequence(response.contents)?.first { $0.tag == 0x8A }
        return name?.contents.elementsEqual(startTLS.utf8) ?? true
    }

    /// The tag of the response to a bind, search, modify, add, delete, modify DN or compare request.
    static func responseTag(of request: UInt8) -> UInt8? {
        switch request {
        case 0x60: 0x61
        case 0x63: 0x65
        case 0x66, 0x68, 0x6C, 0x6E: request + 1
        case 0x4A: 0x6B
        default: nil
        }
    }

    fileprivate static func notLDAP(_ side: some ProtocolSide) -> StartTLSError {
        side.error(.unexpectedMessage, "the \(side.peer) sent something other than an LDAP message", reply: side.farewell)
    }

    static func takeMessage(
        from input: inout MessageInput, for side: some ProtocolSide
    ) throws(StartTLSError) -> Message? {
        guard let length = try BERElement.length(of: input.rest, for: side), let bytes = input.take(length) else {
            return nil
        }
        guard let envelope = BERElement.sequence(bytes)?.first, let parts = BERElement.sequence(envelope.contents),
            parts.count >= 2, let id = parts[0].messageID
        else { throw notLDAP(side) }
        return Message(id: id, operation: parts[1])
    }
}

/// An element of the Basic Encoding Rules, with a tag of one byte and a definite length (RFC 4511, section
/// 5.1).
struct BERElement: Sendable {
    let tag: UInt8
    let contents: ArraySlice<UInt8>

    init(_ tag: UInt8, _ contents: [UInt8]) {
        self.tag = tag
        self.contents = contents[...]
    }

    init(integer: Int) {
        let byteCount = (Int.bitWidth - integer.magnitude.leadingZeroBitCount) / 8 + 1
        self.init(0x02, [UInt8](bigEndian: integer, bytes: byteCount))
    }

    private init(_ tag: UInt8, contents: ArraySlice<UInt8>) {
        self.tag = tag
        self.contents = contents
    }

    /// An integer from 0 to 2,147,483,647 (RFC 4511, section 4.1.1.1). The first bit of a negative integer is
    /// set.
    var messageID: Int? {
        guard tag == 0x02, (1...4).contains(contents.count), let first = contents.first, first < 128 else { return nil }
        return contents.bigEndian(bytes: contents.count)
    }

    var encoded: [UInt8] {
        let count = contents.count
        let length: [UInt8] = count < 128 ? [UInt8(count)] : [0x82] + [UInt8](bigEndian: count, bytes: 2)
        return [tag] + length + contents
    }

    /// Returns the elements of `bytes`, or `nil` if `bytes` is malformed.
    static func sequence(_ bytes: ArraySlice<UInt8>) -> [BERElement]? {
        var elements: [BERElement] = []
        var rest = bytes
        while let tag = rest.first {
            guard let (header, count) = header(rest), rest.count >= header + count else { return nil }
            elements.append(BERElement(tag, contents: rest.dropFirst(header).prefix(count)))
            rest = rest.dropFirst(header + count)
        }
        return elements
    }

    /// Returns the total length of the message at the start of `bytes`, or `nil` if more bytes are needed.
    static func length(of bytes: ArraySlice<UInt8>, for side: some ProtocolSide) throws(StartTLSError) -> Int? {
        guard bytes.first == 0x30 else { throw LDAP.notLDAP(side) }
        guard let second = bytes.dropFirst().first else { return nil }
        guard second < 128 || (0x81...0x84).contains(second) else { throw LDAP.notLDAP(side) }
        guard let (header, count) = header(bytes) else { return nil }
        guard count <= MessageInput.limit else {
            throw side.tooLong()
        }
        return header + count
    }

    private static func header(_ bytes: ArraySlice<UInt8>) -> (header: Int, count: Int)? {
        guard let second = bytes.dropFirst().first else { return nil }
        if second < 128 { return (2, Int(second)) }
        let size = Int(second & 0x7F)
        guard (1...4).contains(size), let count = bytes.dropFirst(2).bigEndian(bytes: size) else { return nil }
        return (2 + size, count)
    }
}
