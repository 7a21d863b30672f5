public import ArgumentParser
internal import Foundation

/// The command-line arguments shared by all servers.
public struct ServerArguments: ParsableArguments, Sendable {
    /// What the server does with a connection's bytes. `Benchmarks/README.md` describes each mode.
    public enum Mode: String, ExpressibleByArgument, Sendable {
        case echo, lines, count, receive, source, starttls
        case udpEcho = "udp-echo"
        case udpReceive = "udp-receive"
        case udpSource = "udp-source"

        /// Whether the mode uses datagrams.
        public var isDatagrams: Bool { [.udpEcho, .udpReceive, .udpSource].contains(self) }
    }

    /// The selected mode.
    @Option(help: "echo, lines, count, receive, source, starttls, udp-echo, udp-receive or udp-source")
    public var mode: Mode
    /// The certificate and key files. Empty for plaintext.
    @Option(parsing: .upToNextOption, help: "The certificate and key files in PEM format.")
    public var tls: [String] = []
    /// The port of 127.0.0.1 to listen on.
    @Option(help: "The port. 0 selects a free port.")
    public var port = 0

    /// Required by the parser.
    public init() {}

    /// Validates what the parser cannot.
    public func validate() throws {
        if !tls.isEmpty && tls.count != 2 { throw ValidationError("--tls needs two files: a certificate and its key") }
    }

    /// Prints the port in the first line of output, for the program that started the server.
    public func announce(port: Int) {
        FileHandle.standardOutput.write(Data("\(port)\n".utf8))
    }

    /// Whether connections use TLS from the start.
    public var beginsSecure: Bool { !tls.isEmpty && mode != .starttls }
}
