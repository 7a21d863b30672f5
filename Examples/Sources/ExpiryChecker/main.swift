// Prints when the certificate of a server expires, even if the certificate is not valid.
//
//     swift run --package-path Examples expiry-checker www.example.org 443
//
// SSL_CERT_FILE=ca.pem trusts your own authority.

// Article: checker
import AsyncSockets
import Foundation

let arguments = CommandLine.arguments.dropFirst()
let host = arguments.first ?? "www.example.org"
let port = arguments.dropFirst().first.flatMap(Int.init) ?? 443

/// Returns the server's certificate or, if it is not trusted, the certificate at fault and the reason.
func inspect() async throws -> (certificate: TLSCertificate?, fault: String?) {
    do {
        let session = try await withDeadline(.seconds(20)) {
            try await AsyncSocket.withConnection(to: host, port: port, tls: .client) { $0.tlsSession }
        }
        return (session?.peerCertificates.first, nil)
    } catch let error as AsyncSocketError {
        guard let tls = error.tls, let peer = tls.peerTrust else { throw error }
        return (peer.rejectedCertificate ?? peer.leaf, tls.message)
    }
}

do {
    let (certificate, fault) = try await inspect()
    if let certificate {
        print("\(certificate.subject), issued by \(certificate.issuer)")
        print("valid until \(certificate.notAfter.ISO8601Format())")
    }
    if let fault { print("not trusted: \(fault)") }
    let days = (certificate?.notAfter.timeIntervalSinceNow ?? 0) / 86_400
    print("days left: \(Int(days))")
    exit(fault == nil && days >= 14 ? EXIT_SUCCESS : EXIT_FAILURE)
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
// Article: end
