import SocketCore
import Testing

/// A PROXY header in a log.
@Suite struct ProxyHeaderDescriptionTests {
    private func header(_ change: (inout ProxyHeader) -> Void = { _ in }) throws -> String {
        let source = try #require(SocketEndpoint(literal: "192.0.2.1", port: 4000))
        var header = ProxyHeader(source: source, destination: try #require(SocketEndpoint(literal: "198.51.100.7", port: 443)))
        change(&header)
        return "\(header)"
    }

    @Test func itReadsAsAPersonWouldWriteIt() throws {
        #expect(try header() == "192.0.2.1:4000 to 198.51.100.7:443")
        #expect("\(ProxyHeader.local)" == "a connection from the proxy itself")
        #expect("\(ProxyHeader.unknown)" == "an unknown client")
        let full = try header {
            $0.authority = "example.org"
            var clientTLS = ProxyHeader.ClientTLS(flags: [.usesTLS, .presentedCertificate], verifyResult: 0)
            (clientTLS.version, clientTLS.commonName) = ("TLSv1.3", "alice")
            $0.clientTLS = clientTLS
        }
        #expect(full == #"192.0.2.1:4000 to 198.51.100.7:443, host "example.org", TLSv1.3, client certificate "alice""#)
    }

    @Test func itTellsWhatWasNotVerified() throws {
        func tls(_ flags: ProxyHeader.ClientTLS.Flags, _ result: UInt32) throws -> String {
            try header { $0.clientTLS = .init(flags: flags, verifyResult: result) }
        }
        #expect(try tls([.usesTLS], 0).hasSuffix(":443, TLS"))
        #expect(try tls([.usesTLS, .presentedCertificateInSession], 0).hasSuffix(", TLS, client certificate"))
        #expect(try tls([.usesTLS, .presentedCertificate], 18).hasSuffix(", TLS, unverified client certificate"))
        #expect(try tls([], 0).hasSuffix(":443"))
    }

    /// A log line is one line, whatever texts the sender has chosen.
    @Test func textsOfTheSenderAreEscaped() throws {
        let text = try header {
            $0.authority = "a\nlevel=error\u{1B}[2J"
            var clientTLS = ProxyHeader.ClientTLS(flags: [.usesTLS, .presentedCertificate], verifyResult: 0)
            (clientTLS.version, clientTLS.commonName) = ("v\r\n", "b\n")
            $0.clientTLS = clientTLS
        }
        #expect(text.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7F })
    }
}
