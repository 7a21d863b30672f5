import StartTLSProtocols

extension Transcript {
    /// The dialogues in XML and in binary messages.
    static let messages: [Transcript] = [
        .client(
            "XMPP (prosody)", .xmpp(domain: "example.org"),
            .own(
                xml: "<?xml version='1.0'?><stream:stream to='example.org' version='1.0' xmlns='jabber:client' "
                    + "xmlns:stream='http://etherx.jabber.org/streams'>"),
            .peer(
                xml: "<?xml version='1.0'?><stream:stream from='example.org' id='4d5c' version='1.0' xml:lang='en' "
                    + "xmlns:stream='http://etherx.jabber.org/streams' xmlns='jabber:client'><stream:features>"
                    + "<limits xmlns='urn:xmpp:stream-limits:0'><max-bytes>10000</max-bytes></limits>"
                    + "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls></stream:features>"),
            .own(xml: "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
            .peer(xml: "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")),
        .client(
            "XMPP (other prefixes)", .xmppServerToServer(domain: "b.example", origin: "a.example"),
            .own(
                xml: "<?xml version='1.0'?><stream:stream to='b.example' from='a.example' version='1.0' "
                    + "xmlns='jabber:server' xmlns:stream='http://etherx.jabber.org/streams'>"),
            .peer(
                xml: "<s:stream xmlns:s=\"http://etherx.jabber.org/streams\" xmlns=\"jabber:server\" version='1.0' a='>'>\n"
                    + "<s:features>\n<t:starttls xmlns:t='urn:ietf:params:xml:ns:xmpp-tls' />\n</s:features >\n"),
            .own(xml: "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
            .peer(xml: " <t:proceed xmlns:t='urn:ietf:params:xml:ns:xmpp-tls'></t:proceed>")),
        .client(
            "PostgreSQL", .postgres, .own([0, 0, 0, 8, 4, 210, 22, 47]), .peer([UInt8(ascii: "S")])),
        .server(
            "PostgreSQL (psql)", .postgres, .peer([0, 0, 0, 8, 4, 210, 22, 48]), .own([UInt8(ascii: "N")]),
            .peer([0, 0, 0, 8, 4, 210, 22, 47]), .own([UInt8(ascii: "S")])),
        .server(
            "PostgreSQL (direct TLS)", .postgres(acceptsDirectTLS: true), surplus: [22, 3, 1, 0, 5], .peer([22, 3, 1, 0, 5])),
        .client("MySQL (MariaDB)", .mysql, .peer(mariaDBGreeting), .own(sslRequest)),
        .server(
            "MySQL", .mysql { ownGreeting }, surplus: [22, 3, 1], .own(ownGreetingBytes), .peer(sslRequest + [22, 3, 1])
        ),
        .client(
            "LDAP (slapd)", .ldap, .own(ldapRequest),
            .peer([0x30, 0x0C, 0x02, 0x01, 0x01, 0x78, 0x07, 0x0A, 0x01, 0x00, 0x04, 0x00, 0x04, 0x00])),
        .server(
            "LDAP (ldapsearch)", .ldap, .peer([0x30, 0x0C, 2, 1, 1, 0x60, 7, 2, 1, 3, 4, 0, 0x80, 0]),
            .own(
                [0x30, 30, 2, 1, 1, 0x61, 25, 0x0A, 1, 13, 4, 0, 4, 18] + Array("use StartTLS first".utf8)),
            .peer([0x30, 5, 2, 1, 2, 0x50, 0]), .peer(ldapRequest),
            .own([0x30, 12, 2, 1, 1, 0x78, 7, 0x0A, 1, 0, 4, 0, 4, 0])),
    ]

    static let ldapRequest: [UInt8] =
        [0x30, 0x1D, 0x02, 0x01, 0x01, 0x77, 0x18, 0x80, 0x16] + Array("1.3.6.1.4.1.1466.20037".utf8)

    /// The first packet of MariaDB 10.11.
    static let mariaDBGreeting: [UInt8] = packet(
        0,
        // Not a sum: Swift 6.2 cannot check the type of a sum of so many literals.
        joined([
            [10], Array("5.5.5-10.11.6-MariaDB-0+deb12u1\0".utf8), [31, 0, 0, 0], Array("abcdefgh".utf8), [0, 0xFE, 0xFF, 0x2D],
            [2, 0, 0xFF, 0x81, 21, 0, 0, 0, 0, 0, 0, 0x1D, 0, 0, 0], Array("ijklmnopqrst\0mysql_native_password\0".utf8),
        ]))

    /// The flags for TLS, protocol 4.1, authentication methods and 20 random bytes; 16 MiB; utf8mb4.
    static let sslRequest = sslRequest(flags: 0)

    static func sslRequest(flags: UInt8) -> [UInt8] {
        packet(1, [flags, 0x8A, 0x08, 0x00, 0, 0, 0, 1, 45] + [UInt8](repeating: 0, count: 23))
    }

    static let ownGreeting = MySQLGreeting(
        serverVersion: "8.0.0", connectionID: 258, nonce: Array("abcdefghijklmnopqrst".utf8),
        authenticationMethod: "caching_sha2_password")

    static let ownGreetingBytes: [UInt8] = packet(
        0,
        joined([
            [10], Array("8.0.0\0".utf8), [2, 1, 0, 0], Array("abcdefgh".utf8), [0, 0x00, 0x8A, 45, 2, 0, 0x08, 0x00, 21],
            [UInt8](repeating: 0, count: 10), Array("ijklmnopqrst\0caching_sha2_password\0".utf8),
        ]))

    private static func joined(_ parts: [[UInt8]]) -> [UInt8] { Array(parts.joined()) }

    static func packet(_ number: UInt8, _ payload: [UInt8]) -> [UInt8] { [UInt8(payload.count), 0, 0, number] + payload }

    static let all = lines + messages
}
