internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

extension Failure {
    /// Describes any error that a command can throw.
    init(_ error: any Error) {
        switch error {
        case let error as Failure: self = error
        case let error as AsyncSocketError: self.init(error)
        case let error as TLSError: self.init(tls: error, operation: nil)
        case is CancellationError: self.init("cancelled", status: .interrupted)
        default: self.init("\(error)")
        }
    }

    private init(_ error: AsyncSocketError) {
        if let tls = error.tls {
            // An unusable file is not a failure of the connection.
            self.init(tls: tls, operation: Self.status(of: tls) == .fileFailed ? nil : error.operation.name)
        } else {
            self.init(
                "\(error.operation.name): \(LibraryMessage.translated(error.message))", advice: Self.advice(about: error),
                status: Self.status(of: error))
        }
    }

    private init(tls error: TLSError, operation: String?) {
        let message = LibraryMessage.translated(error.message)
        self.init(
            operation.map { "\($0): \(message)" } ?? message, advice: Self.advice(about: error),
            status: Self.status(of: error), details: Self.details(of: error))
    }

    private static func status(of error: AsyncSocketError) -> ExitStatus {
        switch error.code {
        case .hostNotFound, .noUsableAddress, .connectFailed, .proxyRefused, .proxyAuthenticationRequired, .proxyFailed:
            .connectFailed
        case .connectTimeout, .readTimeout, .writeTimeout, .idleTimeout, .deadlineExceeded, .handshakeTimeout, .trustTimeout,
            .connectionTimedOut:
            .timedOut
        case .closedByPeer, .truncated, .connectionReset: .connectionLost
        case .earlyPlaintext, .tooManyHandshakes, .startTLSFailed, .tls: .handshakeFailed
        case .badParameter: .usage
        // A datagram socket reports an unreachable peer with the error of a later call.
        case .system where error.fault == .peer: .connectFailed
        default: .failure
        }
    }

    /// What OpenSSL and the peer reported.
    private static func details(of error: TLSError) -> String? {
        var details: [String] = []
        if let alert = error.alert { details.append("received alert \(alert)") }
        if let alert = error.sentAlert { details.append("sent alert \(alert)") }
        if let code = error.verifyCode { details.append("verification result \(code)") }
        details += error.openSSLStack.filter { !error.message.contains($0) }
        return details.isEmpty ? nil : details.joined(separator: "; ")
    }

    private static func status(of error: TLSError) -> ExitStatus {
        if error.fault == .certificate || error.code == .noUsableTLSARecord { return .untrusted }
        return switch error.code {
        case .invalidSettings where error.message.hasPrefix("the key log"): .fileFailed
        case .invalidSettings: .usage
        case .invalidCertificate, .invalidPrivateKey, .invalidSession, .keyMismatch: .fileFailed
        case .truncated: .connectionLost
        case .trustTimeout: .timedOut
        default: .handshakeFailed
        }
    }

    private static func advice(about error: AsyncSocketError) -> String? {
        switch error.code {
        case .hostNotFound: "check the spelling of the host name"
        case .connectFailed where error.errno == ECONNREFUSED, .system where error.errno == ECONNREFUSED:
            "check that a server is listening on this port"
        case .connectTimeout: "check the address and firewalls, or allow more time with --timeout"
        case .deadlineExceeded: "allow more time with --timeout"
        case .proxyAuthenticationRequired: "pass the user name and password as --proxy socks5://USER:PASSWORD@HOST:PORT"
        case .earlyPlaintext where !usesStartTLS:
            "if the server uses STARTTLS on this port, pass --starttls PROTOCOL instead of --tls"
        case .handshakeTimeout where error.operation == .startDTLS:
            "check that the server uses DTLS on this port and, with --psk, that both sides have the same identity and key"
        case .handshakeTimeout where !usesStartTLS: "check that the server uses TLS on this port, or upgrade with --starttls"
        case .system where error.errno == EADDRINUSE: "stop the other program or choose another port"
        case .system where error.errno == EACCES && error.operation == .listen:
            "use a port above 1023, or run with the capability CAP_NET_BIND_SERVICE"
        default: nil
        }
    }

    private static func advice(about error: TLSError) -> String? {
        switch error.code {
        case .unknownIssuer: "pass the authority's certificate with --ca FILE"
        case .hostNameMismatch: names(of: error).map { "pass one of the names of the certificate with --sni: \($0)" }
        case .certificateExpired: "the operator of the server must renew the certificate"
        case .invalidPrivateKey where error.message.contains("passphrase"):
            "pass the passphrase with --passphrase-file or in SOCKCAT_PASSPHRASE"
        case .invalidCertificate where error.message.contains("too weak"),
            .invalidPrivateKey where error.message.contains("too weak"):
            "encrypt the file again with AES, for example with a current version of `openssl pkcs12`"
        case .invalidPrivateKey where error.message.contains("no PEM-encoded private key"):
            "pass the file of the private key with --key"
        case .notTLS where !usesStartTLS: "check the port, or upgrade the connection with --starttls"
        case .tlsaMismatch:
            "the server may be an impostor. If you operate it, compare its records with `sockcat certificate tlsa`"
        case .pinMismatch: "run `sockcat inspect` to see the key of the server"
        case .peerAlert where error.clientCertificateRequest != nil && error.alert == .handshakeFailure:
            "the server requested a certificate: pass it with --cert and --key"
        case .clientCertificateMissing: "the server requires a certificate: pass it with --cert and --key"
        case .peerAlert where error.alert?.description.hasPrefix("certificate_required") == true:
            "pass a certificate with --cert and --key"
        case .peerAlert where error.alert?.description.hasPrefix("unrecognized_name") == true:
            "pass one of the server's names with --sni"
        case .peerAlert where error.alert?.description.hasPrefix("unknown_ca") == true:
            "the server does not trust the authority of the certificate passed with --cert"
        case .closedDuringHandshake where !usesStartTLS:
            "check that the server uses TLS on this port, or upgrade with --starttls"
        default: nil
        }
    }

    private static var usesStartTLS: Bool {
        OptionNames.options(in: CommandLine.arguments.joined(separator: " ")).contains("--starttls")
    }

    private static func names(of error: TLSError) -> String? {
        guard let leaf = error.peerTrust?.leaf else { return nil }
        let names = leaf.dnsNames + leaf.ipAddresses
        return names.isEmpty ? nil : names.map { "\"\($0)\"" }.joined(separator: ", ")
    }
}

extension AsyncSocketError {
    /// Whether the proxy or, without a proxy, the host was not reached.
    var isOfFirstHop: Bool { [.hostNotFound, .noUsableAddress, .connectFailed].contains(code) }
}

extension AsyncSocketError.Operation {
    /// The name of the operation, in the words of the options.
    var name: String {
        switch self {
        case .startTLS: "TLS"
        case .startDTLS: "DTLS"
        default: LibraryMessage.translated(rawValue)
        }
    }
}

/// The text of an error number.
enum ErrorText {
    static func of(_ number: Int32) -> String {
        var buffer = [CChar](repeating: 0, count: 256)
        guard strerror_r(number, &buffer, buffer.count) == 0 else { return "error \(number)" }
        let text = buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return String(decoding: text, as: UTF8.self).lowercased()
    }
}
