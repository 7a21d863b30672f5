/// The initiating side of XMPP (RFC 6120, section 5.4), for clients and servers.
struct XMPPClient: ProtocolSide {
    /// The domain of the server's users, not necessarily the name of the host.
    let domain: String
    /// The domain of the server that connects. `nil` for clients.
    let origin: String?
    private var elements = XMLElements()
    private var state = State.header

    private enum State {
        case header
        case features
        case list(offersTLS: Bool)
        case reply
        /// The condition of a stream error follows.
        case streamError
    }

    init(domain: String, origin: String?) {
        self.domain = domain
        self.origin = origin
    }

    var name: String { "XMPP" }
    var isClient: Bool { true }

    /// White space may separate elements.
    func allows(following rest: ArraySlice<UInt8>) -> Bool { rest.allSatisfy { XMPP.spaces.contains($0) } }

    func validate() throws(StartTLSError) {
        try XMPP.check(domain, for: self)
        if let origin { try XMPP.check(origin, for: self) }
    }

    mutating func start() -> DialogueAction {
        let sender = origin.map { " from='\($0)'" } ?? ""
        return .send(XMPP.header(" to='\(domain)'\(sender)", isServer: origin != nil))
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let token = try XMLTokenizer.take(from: &input, for: self) else { return nil }
        if token.kind == .text || token.kind == .declaration { return try XMPP.skip(token, elements, for: self) }
        let depth = elements.depth
        guard let element = elements.apply(token) else { throw unexpected(token.source) }
        if depth == 1, token.kind == .end { throw refusedConnection(token.source) }
        if element == XMPP.stream("error"), token.kind == .start {
            state = .streamError
            return .continue
        }
        return try receive(token, element, depth)
    }

    private mutating func receive(
        _ token: XMLToken, _ element: XMLElements.Name, _ depth: Int
    ) throws(StartTLSError) -> DialogueAction {
        switch state {
        case .header: try receiveHeader(token, element)
        case .features:
            guard element == XMPP.stream("features"), depth == 1 else { throw unexpected(token.source) }
            if token.kind == .empty { throw notOffered(token.source) }
            state = .list(offersTLS: false)
        case .list(let offersTLS): return try continueList(token, element, depth, offersTLS)
        case .reply: return try receiveReply(token, element, depth)
        case .streamError: throw refusedConnection(token.source)
        }
        return .continue
    }

    private mutating func receiveHeader(_ token: XMLToken, _ element: XMLElements.Name) throws(StartTLSError) {
        guard element == XMPP.stream("stream"), token.kind == .start else { throw unexpected(token.source) }
        // Without a version, the server has no features (RFC 6120, section 4.7.5).
        guard token.attributes["version"] != nil else {
            throw error(
                .notOffered,
                "the server's stream header has no version: the server does not support TLS, or an attacker removed the version",
                line: token.source)
        }
        state = .features
    }

    private mutating func continueList(
        _ token: XMLToken, _ element: XMLElements.Name, _ depth: Int, _ offersTLS: Bool
    ) throws(StartTLSError) -> DialogueAction {
        if depth == 2, element == XMPP.tls("starttls"), token.kind != .end { state = .list(offersTLS: true) }
        // At this depth, only the list itself can end.
        guard depth == 2, token.kind == .end else { return .continue }
        guard offersTLS else { throw notOffered() }
        state = .reply
        return .send(Array("<starttls xmlns='\(XMPP.tlsNamespace)'/>".utf8))
    }

    private func receiveReply(
        _ token: XMLToken, _ element: XMLElements.Name, _ depth: Int
    ) throws(StartTLSError) -> DialogueAction {
        if element == XMPP.tls("failure") { throw refused(token.source) }
        guard element == XMPP.tls("proceed"), depth == (token.kind == .end ? 2 : 1) else { throw unexpected(token.source) }
        return token.kind == .start ? .continue : .startTLS([])
    }
}

/// The server side of XMPP. A client that continues without TLS is rejected.
struct XMPPServer: ProtocolSide {
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
    var farewell: [UInt8] { hasHeader ? streamError("policy-violation") : [] }

    func validate() throws(StartTLSError) { try XMPP.check(domain, for: self) }

    /// The name of an element, without its text.
    func quotablePart(of message: String) -> String? { message.hasPrefix("<") ? message.words.first : nil }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let token = try XMLTokenizer.take(from: &input, for: self) else { return nil }
        if token.kind == .text || token.kind == .declaration { return try XMPP.skip(token, elements, for: self) }
        let depth = elements.depth
        guard let element = elements.apply(token) else {
            throw unexpected(token.source, reply: (hasHeader ? [] : makeHeader()) + streamError("not-well-formed"))
        }
        guard hasHeader else { return try reply(to: token, element) }
        if depth == 1, token.kind == .end { throw loggedOut(token.source, reply: "</stream:stream>") }
        guard element == XMPP.tls("starttls"), depth == (token.kind == .end ? 2 : 1) else {
            throw error(
                .tlsRequired, "the client tried to continue without TLS", line: token.source,
                reply: streamError("policy-violation"))
        }
        return token.kind == .start ? .continue : .startTLS(Array("<proceed xmlns='\(XMPP.tlsNamespace)'/>".utf8))
    }

    private mutating func reply(to token: XMLToken, _ element: XMLElements.Name) throws(StartTLSError) -> DialogueAction {
        let header = makeHeader()
        guard element == XMPP.stream("stream"), token.kind == .start else {
            throw unexpected(token.source, reply: header + streamError("invalid-namespace"))
        }
        guard (token.attributes["to"] ?? domain).inUpperCase == domain.inUpperCase else {
            throw unexpected(token.source, reply: header + streamError("host-unknown"))
        }
        hasHeader = true
        let features = "<stream:features><starttls xmlns='\(XMPP.tlsNamespace)'><required/></starttls></stream:features>"
        return .send(header + Array(features.utf8))
    }

    /// Returns the start of the stream, with a new random ID.
    private func makeHeader() -> [UInt8] {
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

    static func check(_ domain: String, for side: some ProtocolSide) throws(StartTLSError) {
        try side.check(domain, "the domain", allowsSpaces: false)
        try side.check(domain, "the domain", excludes: "<>&'\"")
    }

    /// Ignores white space between elements, text inside elements, and the declaration at the start.
    static func skip(
        _ token: XMLToken, _ elements: XMLElements, for side: some ProtocolSide
    ) throws(StartTLSError) -> DialogueAction {
        let isSkipped = token.kind == .text ? elements.depth > 1 || token.source.allSatisfy(\.isXMLSpace) : elements.depth == 0
        guard isSkipped else { throw side.unexpected(token.source) }
        return .continue
    }
}
