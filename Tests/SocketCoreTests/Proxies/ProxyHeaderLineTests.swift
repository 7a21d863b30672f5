import SocketCore
import Testing

/// Version 1 of the PROXY protocol.
@Suite struct ProxyHeaderLineTests {
    @Test(arguments: [
        ("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", "192.168.0.1:56324", "192.168.0.11:443"),
        ("PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", "0.0.0.0:0", "0.0.0.0:0"),
        ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535", "255.255.255.255:65535"),
        ("PROXY TCP6 :: :: 0 0\r\n", "[::]:0", "[::]:0"),
        ("PROXY TCP6 2001:db8::1 2001:DB8:0:0:0:0:0:2 1 25\r\n", "[2001:db8::1]:1", "[2001:db8::2]:25"),
        ("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 25\r\n", "[::ffff:192.0.2.1]:1", "[::1]:25"),
    ])
    func aLineNamesBothEnds(_ line: String, _ source: String, _ destination: String) throws {
        let transcript = ProxyHeaderTranscript(of: Array(line + "EHLO"))
        let header = try #require(transcript.header)
        #expect(header.source.map { "\($0)" } == source)
        #expect(header.destination.map { "\($0)" } == destination)
        #expect(!header.isLocal && header.transport == .stream)
        #expect(transcript.byteCount == line.utf8.count)
        #expect(transcript.askedForLittleEnough)
        #expect(ProxyHeader.parsed(Array(line + "\r\nPROXY")) == .complete(header, consumedCount: line.utf8.count))
    }

    @Test(arguments: [
        "PROXY UNKNOWN\r\n", "PROXY UNKNOWN \r\n", "PROXY UNKNOWN ff:: \u{1}\u{0} anything\r\n",
        "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
    ])
    func anUnknownConnectionHasNoAddressesWhateverFollows(line: String) {
        let transcript = ProxyHeaderTranscript(of: Array(line))
        #expect(transcript.header == .unknown)
        #expect(transcript.byteCount == line.utf8.count)
        #expect(transcript.askedForLittleEnough)
    }

    /// Each line with the length of its valid prefix. The next byte is rejected.
    @Test(arguments: [
        ("", "GET / HTTP/1.1\r\n"), ("", "\u{16}\u{3}\u{1}"), ("", "\n"), ("P", "OST / HTTP/1.1\r\n"), ("PROXY", "\r\n"),
        ("PROXY ", " TCP4 "), ("PROXY ", "tcp4 "), ("PROXY TCP", "5 "), ("PROXY TCP4", "\t"), ("PROXY UNKNOWN", "S\r\n"),
        ("PROXY UNKNOWN", "\n"), ("PROXY UNKNOWN\r", "\r\n"), ("PROXY UNKNOWN 1", "\n"), ("PROXY TCP4 ", " "),
        ("PROXY TCP4 ", "-"),
        ("PROXY TCP4 ", ":: "), ("PROXY TCP4 1.2.3.4\r", " "), ("PROXY TCP4 1.2.3.4\r", "\n"), ("PROXY TCP4 1.2.3", " "),
        ("PROXY TCP4 1.2.3.4.5", " "), ("PROXY TCP4 1.2.3.256", " "), ("PROXY TCP4 01.2.3.4", " "), ("PROXY TCP4 0", "x7f.1"),
        ("PROXY TCP4 1.2.3.4 ", " 1.2.3.4"), ("PROXY TCP4 1.2.3.4 1.2.3.4 01", " "), ("PROXY TCP4 1.2.3.4 1.2.3.4 65536", " "),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 ", "+1 "), ("PROXY TCP4 1.2.3.4 1.2.3.4 1", "\n"), ("PROXY TCP4 1.2.3.4 1.2.3.4 1\r", "\n"),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2", " "), ("PROXY TCP4 1.2.3.4 1.2.3.4 1 \r", "\n"),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 70000\r", "\n"), ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r", "2"),
        ("PROXY TCP6 1.2.3.4", " "), ("PROXY TCP6 fe80::1", "%lo "), ("PROXY TCP6 ", "[::1]"), ("PROXY TCP6 1::2::3", " "),
        ("PROXY TCP6 1:2:3:4:5:6:7:8:9", " "), ("PROXY TCP6 12345::", " "), ("PROXY TCP6 :: ", "g"),
        ("PROXY TCP6 :: 1.2.3.4", " "), ("PROXY TCP4 1.2.3.4 1.2.3.", "\u{0}"),
    ])
    func aLineIsRefusedWithItsFirstWrongByte(right: String, wrong: String) throws {
        let transcript = ProxyHeaderTranscript(of: Array(right + wrong))
        #expect(transcript.failure?.code == .malformed)
        #expect(transcript.byteCount == right.utf8.count + 1)
        #expect(transcript.askedForLittleEnough)
    }

    @Test func aLineHasAtMost107Bytes() {
        let head = "PROXY UNKNOWN "
        let longest = head + String(repeating: "x", count: 107 - head.utf8.count - 2) + "\r\n"
        #expect(ProxyHeaderTranscript(of: Array(longest)).header == .unknown)
        for tooLong in [head + String(repeating: "x", count: 200), longest.dropLast() + "x\r\n"] {
            let transcript = ProxyHeaderTranscript(of: Array(tooLong.utf8))
            #expect(transcript.failure?.code == .tooLong)
            #expect(transcript.byteCount == 106)
            #expect(ProxyHeader.parsed(Array(tooLong.utf8)) == transcript.answer)
        }
    }

    @Test func anErrorQuotesThePeerInPrintableASCIIOnly() throws {
        let transcript = ProxyHeaderTranscript(of: Array("\u{1b}[2J"))
        let error = try #require(transcript.failure)
        #expect(error.message == "the peer did not send a PROXY header: \"?\"")
        #expect("\(error)".hasSuffix("[malformed]"))
    }
}
