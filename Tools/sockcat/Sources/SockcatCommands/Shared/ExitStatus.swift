/// The exit codes of `sockcat`, which `sockcat --help` lists.
enum ExitStatus: Int32, CaseIterable, Sendable {
    case success = 0
    case failure = 1
    case connectFailed = 2
    case handshakeFailed = 3
    case untrusted = 4
    case timedOut = 5
    case connectionLost = 6
    case fileFailed = 7
    case expiresSoon = 8
    case usage = 64
    case interrupted = 130
    case outputClosed = 141
    case terminated = 143

    var meaning: String {
        switch self {
        case .success: "success"
        case .failure: "any other failure"
        case .connectFailed: "no connection: unknown host, refused, or rejected by a proxy"
        case .handshakeFailed: "the TLS handshake or the STARTTLS dialogue failed"
        case .untrusted: "the peer's certificate is not trusted"
        case .timedOut: "a time limit expired"
        case .connectionLost: "the connection was lost"
        case .fileFailed: "a file, standard input or standard output cannot be read or written"
        case .expiresSoon: "a certificate expires soon (see sockcat inspect --days)"
        case .usage: "invalid arguments"
        case .interrupted: "interrupted by Ctrl-C (SIGINT)"
        case .outputClosed: "the program that reads the output has exited (SIGPIPE)"
        case .terminated: "terminated by SIGTERM"
        }
    }

    /// One line for each exit code, for help texts.
    static var table: String {
        allCases.map { status in
            let code = "\(status.rawValue)"
            return "  \(code)\(String(repeating: " ", count: 5 - code.count))\(status.meaning)"
        }.joined(separator: "\n")
    }
}
