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

/// Prints a certificate and its faults, and returns whether it is valid.
@Sendable func inspect(_ server: PeerTrust) -> Bool {
    if let leaf = server.leaf {
        print("\(leaf.subject), issued by \(leaf.issuer)")
        print("valid until \(leaf.notAfter.ISO8601Format())")
    }
    let verdicts = [server.verdict] + server.otherFaults
    for case .untrusted(let reason, _, _) in verdicts {
        print("not trusted: \(reason)")
    }
    return server.verdict == .trusted
}

do {
    var settings = TLSSettings.client
    settings.trustEvaluation = .manual
    let end = try await withDeadline(.seconds(20)) {
        try await AsyncSocket.withConnection(
            to: host, port: port, tls: settings, trust: inspect
        ) { $0.tlsSession?.peerCertificates.first?.notAfter }
    }
    let days = (end?.timeIntervalSinceNow ?? 0) / 86_400
    print("days left: \(Int(days))")
    exit(days < 14 ? EXIT_FAILURE : EXIT_SUCCESS)
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
// Article: end
