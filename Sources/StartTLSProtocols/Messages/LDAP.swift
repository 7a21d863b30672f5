/// The client side of LDAP (RFC 4511, section 4.14).
struct LDAPClient: Conversation {
    var name: String { "LDAP" }
    var isClient: Bool { true }

    /// The request has the message ID 1.
    mutating func start() -> ConversationAction {
        .send(LDAP.message(id: 1, BERElement(LDAP.extendedRequest, BERElement(0x80, Array(LDAP.startTLS.utf8)).encoded)))
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let message = try LDAP.take(from: &input, for: self) else { return nil }
        guard message.operation.tag == LDAP.extendedResponse, message.id <= 1 else {
            throw unexpected("LDAP message \(message.id) with the tag \(message.operation.tag)")
        }
        let (result, text) = try result(of: message.operation)
        // Message ID 0 is the server's notice of disconnection.
        guard message.id == 1 else { throw refusedConnection(text) }
        switch result {
        case 0: return .startTLS([])
        // protocolError: the server does not know the request.
        case 2: throw notOffered(text)
        default: throw refused(text)
        }
    }

    private func result(of response: BERElement) throws(StartTLSError) -> (code: UInt8, text: String) {
        let parts = BERElement.sequence(response.contents) ?? []
        guard parts.count >= 3, parts[0].tag == 0x0A, parts[0].contents.count == 1, let code = parts[0].contents.first else {
            throw unexpected("an LDAP response without a result")
        }
        return (code, "result \(code) \(String(decoding: parts[2].contents, as: UTF8.self))")
    }
}

/// The server side of LDAP. Other operations are rejected with confidentialityRequired.
struct LDAPServer: Conversation {
    var name: String { "LDAP" }
    var isClient: Bool { false }

    mutating func start() -> ConversationAction { .continue }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let message = try LDAP.take(from: &input, for: self) else { return nil }
        let tag = message.operation.tag
        if tag == LDAP.extendedRequest {
            let requestName = BERElement.sequence(message.operation.contents)?.first
            if let requestName, requestName.tag == 0x80, requestName.contents.elementsEqual(LDAP.startTLS.utf8) {
                return .startTLS(LDAP.response(LDAP.extendedResponse, id: message.id, result: 0, ""))
            }
            return .send(LDAP.response(LDAP.extendedResponse, id: message.id, result: 2, "unknown extended request"))
        }
        if tag == LDAP.unbindRequest { throw quit("unbind") }
        // An abandon request has no response.
        guard let response = LDAP.responseTag(of: tag) else { return .continue }
        return .send(LDAP.response(response, id: message.id, result: 13, "use StartTLS first"))
    }
}

enum LDAP {
    static let startTLS = "1.3.6.1.4.1.1466.20037"
    static let extendedRequest: UInt8 = 0x77
    static let extendedResponse: UInt8 = 0x78
    static let unbindRequest: UInt8 = 0x42

    struct Message {
        let id: Int
        let operation: BERElement
    }

    static func message(id: Int, _ operation: BERElement) -> [UInt8] {
        BERElement(0x30, BERElement(integer: id).encoded + operation.encoded).encoded
    }

    static func response(_ tag: UInt8, id: Int, result: UInt8, _ text: String) -> [UInt8] {
        let contents =
            BERElement(0x0A, [result]).encoded + BERElement(0x04, []).encoded + BERElement(0x04, Array(text.utf8)).encoded
        return message(id: id, BERElement(tag, contents))
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

    static func take(
        from input: inout MessageInput, for conversation: some Conversation
    ) throws(StartTLSError) -> Message? {
        guard let length = try BERElement.length(of: input.rest, for: conversation), let bytes = input.take(length) else {
            return nil
        }
        guard let envelope = BERElement.sequence(bytes)?.first, let parts = BERElement.sequence(envelope.contents),
            parts.count >= 2, let id = parts[0].integer, id >= 0
        else { throw conversation.unexpected("not an LDAP message") }
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

    /// A message ID of at most four bytes.
    var integer: Int? {
        guard tag == 0x02, (1...4).contains(contents.count) else { return nil }
        return contents.integer(bytes: contents.count)
    }

    var encoded: [UInt8] {
        let count = contents.count
        let length: [UInt8] = count < 128 ? [UInt8(count)] : [0x82] + [UInt8](bigEndian: count, bytes: 2)
        return [tag] + length + contents
    }

    /// Returns the elements that `bytes` consists of, or `nil` if it contains anything else.
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
    static func length(of bytes: ArraySlice<UInt8>, for conversation: some Conversation) throws(StartTLSError) -> Int? {
        guard bytes.first == 0x30 else { throw conversation.unexpected("not an LDAP message") }
        guard let second = bytes.dropFirst().first else { return nil }
        guard second < 128 || (0x81...0x84).contains(second) else { throw conversation.unexpected("not an LDAP message") }
        guard let (header, count) = header(bytes) else { return nil }
        guard count <= MessageInput.limit else {
            throw conversation.error(.tooLong, "the \(conversation.peer) announced a message of \(count) bytes before TLS")
        }
        return header + count
    }

    private static func header(_ bytes: ArraySlice<UInt8>) -> (header: Int, count: Int)? {
        guard let second = bytes.dropFirst().first else { return nil }
        if second < 128 { return (2, Int(second)) }
        let size = Int(second & 0x7F)
        guard (1...4).contains(size), let count = bytes.dropFirst(2).integer(bytes: size) else { return nil }
        return (2 + size, count)
    }
}
