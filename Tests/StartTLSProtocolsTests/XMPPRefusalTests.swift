import StartTLSProtocols
import Testing

/// Peers of XMPP that do not agree to start TLS (RFC 6120, sections 4, 5.4 and 11).
@Suite struct XMPPRefusalTests {
    @Test(arguments: header + features + reply) func anXMPPClientDoesNotStartTLS(_ row: RefusalRow) throws { try row.check() }

    @Test(arguments: serverHeader + serverRequest) func anXMPPServerDoesNotStartTLS(_ row: RefusalRow) throws {
        try row.check()
    }

    private static let streams = "xmlns:stream='http://etherx.jabber.org/streams'"
    private static let start = "<stream:stream version='1.0' xmlns='jabber:client' \(streams)>"
    private static let tls = "xmlns='urn:ietf:params:xml:ns:xmpp-tls'"
    private static let sasl = "xmlns='urn:ietf:params:xml:ns:xmpp-sasl'"
    private static let condition = "<policy-violation xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"

    private static let header = RefusalRow.client(
        "XMPP header", .xmpp(domain: "m"),
        text: [
            "<stream:stream \(streams)>": .notOffered, "\(start)</stream:stream>": .refused,
            "\(start)<stream:error>\(condition)</stream:error>": .refused, "\(start)": .waits, "<?xml version='1.0'?>": .waits,
            "<?xml version='1.0'": .waits, " \r\n\t": .waits, "<stream:stream version='1.0' a='>": .waits,
            "<html>": .unexpected, "<stream:stream version='1.0'>": .unexpected, "<stream version='1.0'>": .unexpected,
            "<stream version='1.0' xmlns='jabber:client'>": .unexpected,
            "<stream:stream version='1.0' xmlns:stream='http://etherx.jabber.org/stream'>": .unexpected,
            "<stream:stream version='1.0' xmlns:stream='HTTP://etherx.jabber.org/streams'>": .unexpected,
            "<stream:stream version='1.0' xmlns:streams='http://etherx.jabber.org/streams'>": .unexpected,
            "<stream:Stream version='1.0' \(streams)>": .unexpected, "<stream:stream version='1.0' \(streams)/>": .unexpected,
            "<stream:stream version='1.0' version='1.0' \(streams)>": .unexpected,
            "<stream:stream version=1.0 \(streams)>": .unexpected, "<stream:stream version \(streams)>": .unexpected,
            "<stream:stream version='<' \(streams)>": .unexpected, "</stream:stream>": .unexpected,
            "<stream:features \(streams)>": .unexpected, "<starttls \(tls)/>": .unexpected, "<proceed \(tls)/>": .unexpected,
            "<?xml version='1.0'>": .unexpected, "<?php ?>": .unexpected, "<!DOCTYPE html>": .unexpected,
            "<!-- \(start) -->": .unexpected, "<>": .unexpected, "< stream:stream>": .unexpected, "STARTTLS\r\n": .unexpected,
            "220 m\r\n": .unexpected, "\u{15}\u{3}\u{3}\u{0}": .unexpectedTLS,
        ])

    private static let features = RefusalRow.client(
        "XMPP features", .xmpp(domain: "m"), after: [start],
        text: [
            "<stream:features/>": .notOffered, "<stream:features></stream:features>": .notOffered,
            "<stream:features>\n</stream:features>": .notOffered,
            "<stream:features><mechanisms \(sasl)/></stream:features>": .notOffered,
            "<stream:features><starttls/></stream:features>": .notOffered,
            "<stream:features><starttls \(sasl)/></stream:features>": .notOffered,
            "<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tlsx'/></stream:features>": .notOffered,
            "<stream:features><starttls xmlns='URN:ietf:params:xml:ns:xmpp-tls'/></stream:features>": .notOffered,
            "<stream:features><starttls xmlns=''/></stream:features>": .notOffered,
            "<stream:features><starttlsx \(tls)/></stream:features>": .notOffered,
            "<stream:features><STARTTLS \(tls)/></stream:features>": .notOffered,
            "<stream:features><required \(tls)/></stream:features>": .notOffered,
            "<stream:features><x a='starttls' b=\"\(tls)\"/></stream:features>": .notOffered,
            "<stream:features><mechanisms \(sasl)><starttls \(tls)/></mechanisms></stream:features>": .notOffered,
            "<stream:features><a><starttls \(tls)></starttls></a></stream:features>": .notOffered,
            "<stream:features>&lt;starttls \(tls)/&gt;</stream:features>": .notOffered,
            "<stream:features><a \(tls)/><starttls/></stream:features>": .notOffered,
            "<stream:features><a \(tls)></a><starttls/></stream:features>": .notOffered,
            "<stream:features><stream:features/></stream:features>": .notOffered,
            "<stream:features><stream:features></stream:features></stream:features>": .notOffered,
            "<stream:features><starttls \(tls)/>": .waits, "<stream:features><starttls \(tls)></starttls>": .waits,
            "<stream:features><starttls \(tls)/></stream:features": .waits,
            // The list is still open.
            "<stream:features><starttls \(tls)/><stream:features/>": .waits,
            "<stream:features><starttls \(tls)/><stream:features>": .waits,
            "<stream:features><starttls \(tls)/></features>": .unexpected,
            "<stream:features><starttls \(tls)></stream:features>": .unexpected,
            "<stream:features><starttls \(tls)/></stream:features a='1'>": .unexpected,
            "<stream:features><starttls></starttls \(tls)>": .unexpected,
            "<stream:features><t:starttls/></stream:features>": .unexpected,
            "<stream:features><a xmlns:t='urn:ietf:params:xml:ns:xmpp-tls'/><t:starttls/>": .unexpected,
            "<stream:features><a xmlns:t='urn:ietf:params:xml:ns:xmpp-tls'></a><t:starttls/>": .unexpected,
            "<stream:features><x a=\"<starttls \(tls)/>\"/>": .unexpected,
            "<stream:features><![CDATA[<starttls \(tls)/>]]></stream:features>": .unexpected,
            "<stream:features><!-- <starttls \(tls)/> --></stream:features>": .unexpected,
            "<stream:features><?starttls \(tls)?></stream:features>": .unexpected,
            "<features/>": .unexpected, "<starttls \(tls)/>": .unexpected, "<proceed \(tls)/>": .unexpected,
            "<message/>": .unexpected, "</features>": .unexpected, "text": .unexpected, "<?xml version='1.0'?>": .unexpected,
            "</stream:stream>": .refused, "<stream:features></stream:features></stream:stream>": .notOffered,
            "<stream:error>\(condition)</stream:error>": .refused, "<stream:error></stream:error>": .refused,
            "<stream:features><stream:error>\(condition)": .refused, "\u{15}\u{3}\u{3}\u{0}": .unexpectedTLS,
        ])

    private static let reply = RefusalRow.client(
        "XMPP reply", .xmpp(domain: "m"), after: [start, "<stream:features><starttls \(tls)/></stream:features>"],
        text: [
            "<failure \(tls)/>": .refused, "<failure \(tls)></failure>": .refused, "<failure \(tls)>": .refused,
            "<proceed \(tls)><failure/></proceed>": .refused, "</stream:stream>": .refused,
            "<stream:error>\(condition)</stream:error>": .refused, "<proceed/>": .unexpected, "<failure/>": .unexpected,
            "<failure \(sasl)/>": .unexpected, "<proceed \(sasl)/>": .unexpected, "<proceedx \(tls)/>": .unexpected,
            "<Proceed \(tls)/>": .unexpected, "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tlsx'/>": .unexpected,
            "<t:proceed/>": .unexpected, "<starttls \(tls)/>": .unexpected, "<iq><proceed \(tls)/></iq>": .unexpected,
            "<proceed \(tls)><proceed/></proceed>": .unexpected, "<proceed \(tls)><a/></proceed>": .unexpected,
            "<proceed \(tls)></failure>": .unexpected, "<proceed \(tls)></proceed a='1'>": .unexpected,
            "<proceed></proceed \(tls)>": .unexpected, "</proceed>": .unexpected, "proceed": .unexpected,
            "<!-- <proceed \(tls)/> -->": .unexpected, "<![CDATA[<proceed \(tls)/>]]>": .unexpected,
            "<?proceed?>": .unexpected, "<stream:features/>": .unexpected, start: .unexpected, "<proceed \(tls)>": .waits,
            "<proceed \(tls)/": .waits, "<proceed a='>' \(tls)": .waits, " \n": .waits,
            "\u{15}\u{3}\u{3}\u{0}": .unexpectedTLS,
        ])

    // MARK: - Servers

    private static let serverHeader = RefusalRow.server(
        "XMPP server, header", .xmpp(domain: "m.example"),
        text: [
            "<html>": failsWithHeader("invalid-namespace"), "<stream version='1.0'>": failsWithHeader("invalid-namespace"),
            "<stream:stream xmlns:stream='jabber:client'>": failsWithHeader("invalid-namespace"),
            "<stream:stream xmlns:stream='http://etherx.jabber.org/stream'>": failsWithHeader("invalid-namespace"),
            "<stream:stream \(streams)/>": failsWithHeader("invalid-namespace"),
            "<stream:features \(streams)>": failsWithHeader("invalid-namespace"),
            "<starttls \(tls)/>": failsWithHeader("invalid-namespace"),
            "<stream:stream to='x' \(streams)>": failsWithHeader("host-unknown"),
            "<stream:stream to='' \(streams)>": failsWithHeader("host-unknown"),
            "<stream:stream to='m.examplex' \(streams)>": failsWithHeader("host-unknown"),
            "<stream:stream to='x.m.example' \(streams)>": failsWithHeader("host-unknown"),
            "<stream:stream version='1.0'>": failsWithHeader("not-well-formed"),
            "</stream:stream>": failsWithHeader("not-well-formed"),
            "<?xml version='1.0'?>": .waits, "<stream:stream \(streams)": .waits, "<!DOCTYPE x>": .unexpected,
            "<?xml>": .unexpected, "STARTTLS\r\n": .unexpected, "<stream:stream to='m.example' to='x' \(streams)>": .unexpected,
            "\u{16}\u{3}\u{1}\u{0}": .unexpectedTLS,
        ])

    private static let serverRequest: [RefusalRow] =
        RefusalRow.server("XMPP server, request", .xmpp(domain: "m"), after: [start], text: requests)
        + RefusalRow.server(
            "XMPP server, request of a server", .xmppServerToServer(domain: "m"),
            after: ["<stream:stream xmlns='jabber:server' \(streams) to='M'>"], text: requests)

    private static let requests: KeyValuePairs<String, RefusalRow.Expected> = [
        "<starttls/>": tlsRequired, "<starttls \(sasl)/>": tlsRequired, "<starttlsx \(tls)/>": tlsRequired,
        "<STARTTLS \(tls)/>": tlsRequired, "<proceed \(tls)/>": tlsRequired, "<auth \(sasl) mechanism='PLAIN'>": tlsRequired,
        "<iq type='get' id='starttls'/>": tlsRequired, "<presence/>": tlsRequired, "<a><starttls \(tls)/></a>": tlsRequired,
        "<starttls \(tls)><starttls/></starttls>": tlsRequired, "<starttls \(tls)><a/></starttls>": tlsRequired,
        "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tlsx'/>": tlsRequired, "<starttls \(tls)></auth>": fails("not-well-formed"),
        "<t:starttls/>": fails("not-well-formed"), "</starttls>": fails("not-well-formed"), "<starttls \(tls)>": .waits,
        "<starttls \(tls)/": .waits, " \n": .waits, "</stream:stream>": .fails(.closed, sending: "</stream:stream>"),
        "starttls": .unexpected, "<!-- <starttls \(tls)/> -->": .unexpected, "<![CDATA[<starttls \(tls)/>]]>": .unexpected,
        "<?starttls?>": .unexpected, "<a b=\"<starttls \(tls)/>\"/>": .unexpected, "<starttls \(tls) \(tls)/>": .unexpected,
        "<starttls \(tls)></starttls a='1'>": .unexpected, "\u{16}\u{3}\u{1}\u{0}": .unexpectedTLS,
    ]

    private static let tlsRequired = RefusalRow.Expected.fails(.tlsRequired, sending: "policy-violation")

    private static func fails(_ condition: String) -> RefusalRow.Expected { .fails(.unexpectedMessage, sending: condition) }

    /// An error in the first header still needs the header of the server (section 4.9.1.2).
    private static func failsWithHeader(_ condition: String) -> RefusalRow.Expected {
        fails("\(streams)><stream:error><\(condition)")
    }
}
