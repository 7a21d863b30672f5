/// The client side of XMPP (RFC 6120, section 5.4), also between servers.
struct XMPPClient: Conversation {
    /// The domain of the server's users, not necessarily the name of the host.
    let domain: String
    /// The domain of the server that connects. `nil` for clients.
    let from: String?
    private var elements = XMLElements()
    private var state = State.header

    private enum State {
        case header
        case features
        case list(offersTLS: Bool)
        case reply
    }

    init(domain: String, from: String?) {
        self.domain = domain
        self.from = from
    }

    var name: String { "XMPP" }
    var isClient: Bool { true }

    /// White space may separate elements.
    func allows(following rest: ArraySlice<UInt8>) -> Bool { rest.allSatisfy { XMPP.spaces.contains($0) } }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try XMPP.check(domain, for: self)
        if let from { try XMPP.check(from, for: self) }
        let sender = from.map { " from='\($0)'" } ?? ""
        return .send(XMPP.header(" to='\(domain)'\(sender)", isServer: from != nil))
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let token = try XMLTokenizer.take(from: &input, for: self) else { return nil }
        if token.kind == .text || token.kind == .declaration { return try XMPP.skip(token, elements, for: self) }
        let depth = elements.depth
        guard let element = elements.apply(token) else { throw unexpected(token.source) }
        if element == XMPP.stream("error") || (depth == 1 && token.kind == .end) { throw refusedConnection(token.source) }
        switch state {
        case .header:
            guard element == XMPP.stream("stream"), token.kind == .start else { throw unexpected(token.source) }
            state = .features
            return .continue
        case .features: return try beginList(token, element, depth)
        case .list(let offersTLS): return try continueList(token, element, depth, offersTLS)
        case .reply: return try decide(token, element, depth)
        }
    }

    private mutating func beginList(
        _ token: XMLToken, _ element: XMLElements.Name, _ depth: Int
    ) throws(StartTLSError) -> ConversationAction {
        guard element == XMPP.stream("features"), depth == 1 else { throw unexpected(token.source) }
        if token.kind == .empty { throw notOffered(token.source) }
        state = .list(offersTLS: false)
        return .continue
    }

    private mutating func continueList(
        _ token: XMLToken, _ element: XMLElements.Name, _ depth: Int, _ offersTLS: Bool
    ) throws(StartTLSError) -> ConversationAction {
        if depth == 2, element == XMPP.tls("starttls"), token.kind != .end { state = .list(offersTLS: true) }
        guard depth == 2, element == XMPP.stream("features") else { return .continue }
        guard offersTLS else { throw notOffered() }
        state = .reply
        return .send(Array("<starttls xmlns='\(XMPP.tlsNamespace)'/>".utf8))
    }

    private func decide(_ token: XMLToken, _ element: XMLElements.Name, _ depth: Int) throws(StartTLSError) -> ConversationAction
    {
        if element == XMPP.tls("failure") { throw refused(token.source) }
        guard element == XMPP.tls("proceed") else { throw unexpected(token.source) }
        return token.kind == .start ? .continue : .startTLS([])
    }
}

/// The server side of XMPP. A client that continues without TLS is rejected.
struct XMPPServer: Conversation {
    let domain: String
    let isServerToServer: Bool
    private var elements = XMLElements()
    private var hasHeader = false

    init(domain: String, isServerToServer: Bool) {
        self.domain = domain
        self.isServerToServer = isServerToServer
    }

    var name: String { "XMPP" }
    var isClient: Bool { false }
    var farewell: [UInt8] { Array("</stream:stream>".utf8) }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        try XMPP.check(domain, for: self)
        return .continue
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let token = try XMLTokenizer.take(from: &input, for: self) else { return nil }
        if token.kind == .text || token.kind == .declaration { return try XMPP.skip(token, elements, for: self) }
        let depth = elements.depth
        guard let element = elements.apply(token) else { throw unexpected(token.source, reply: streamError("not-well-formed")) }
        guard hasHeader else { return try reply(to: token, element) }
        if depth == 1, token.kind == .end { throw quit(token.source, reply: "</stream:stream>") }
        guard element == XMPP.tls("starttls") else {
            throw error(
                .tlsRequired, "the client tried to continue without TLS", line: token.source,
                reply: streamError("policy-violation"))
        }
        return token.kind == .start ? .continue : .startTLS(Array("<proceed xmlns='\(XMPP.tlsNamespace)'/>".utf8))
    }

    private mutating func reply(to token: XMLToken, _ element: XMLElements.Name) throws(StartTLSError) -> ConversationAction {
        guard element == XMPP.stream("stream"), token.kind == .start else {
            throw unexpected(token.source, reply: headerBytes + streamError("invalid-namespace"))
        }
        guard token.attributes["to"] == nil || token.attributes["to"]?.lowercased() == domain.lowercased() else {
            throw unexpected(token.source, reply: headerBytes + streamError("host-unknown"))
        }
        hasHeader = true
        let features = "<stream:features><starttls xmlns='\(XMPP.tlsNamespace)'><required/></starttls></stream:features>"
        return .send(headerBytes + Array(features.utf8))
    }

    private var headerBytes: [UInt8] {
        XMPP.header(" from='\(domain)' id='\(UInt64.random(in: .min ... .max))'", isServer: isServerToServer)
    }

    private func streamError(_ condition: String) -> [UInt8] {
        Array(
            "<stream:error><\(condition) xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error></stream:stream>".utf8)
    }
}

enum XMPP {
    static let tlsNamespace = "urn:ietf:params:xml:ns:xmpp-tls"
    static let spaces: [UInt8] = [9, 10, 13, 32]

    static func stream(_ name: Substring) -> XMLElements.Name {
        .init(local: name, namespace: "http://etherx.jabber.org/streams")
    }

    static func tls(_ name: Substring) -> XMLElements.Name { .init(local: name, namespace: tlsNamespace) }

    static func header(_ attributes: String, isServer: Bool) -> [UInt8] {
        let header =
            "<?xml version='1.0'?><stream:stream\(attributes) version='1.0' xmlns='jabber:\(isServer ? "server" : "client")' "
            + "xmlns:stream='http://etherx.jabber.org/streams'>"
        return Array(header.utf8)
    }

    static func check(_ domain: String, for conversation: some Conversation) throws(StartTLSError) {
        try conversation.check(domain, "the domain", allowsSpaces: false)
        guard !domain.contains(where: { "<>&'\"".contains($0) }) else {
            throw conversation.error(.invalidParameter, "the domain must not contain characters of XML markup", line: domain)
        }
    }

    /// Ignores white space between elements, text inside elements, and the declaration at the start.
    static func skip(
        _ token: XMLToken, _ elements: XMLElements, for conversation: some Conversation
    ) throws(StartTLSError) -> ConversationAction {
        let isSkipped = token.kind == .text ? elements.depth > 1 || token.source.allSatisfy(\.isXMLSpace) : elements.depth == 0
        guard isSkipped else { throw conversation.unexpected(token.source) }
        return .continue
    }
}
