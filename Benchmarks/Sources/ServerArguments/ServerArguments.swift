public import ArgumentParser
internal import Foundation

/// The common command line of all servers.
public struct ServerArguments: ParsableArguments, Sendable {
    /// What the server does with the bytes of a connection; `Benchmarks/README.md` describes each mode.
    public enum Mode: String, ExpressibleByArgument, Sendable {
        case echo, lines, count, receive, source, starttls
        case udpEcho = "udp-echo"
        case udpReceive = "udp-receive"
        case udpSource = "udp-source"

        /// Whether it is about datagrams.
        public var isDatagrams: Bool { [.udpEcho, .udpReceive, .udpSource].contains(self) }
    }

    /// The mode.
    @Option(help: "echo, lines, count, receive, source, starttls, udp-echo, udp-receive or udp-source")
    public var mode: Mode
    /// The files of a certificate and its key; empty for plaintext.
    @Option(parsing: .upToNextOption, help: "The files of a certificate and its key, in PEM.")
    public var tls: [String] = []
    /// The port of 127.0.0.1 to listen on.
    @Option(help: "The port; 0 means a free one.")
    public var port = 0

    /// For the parser.
    public init() {}

    /// Checks what the parser cannot.
    public func validate() throws {
        if !tls.isEmpty && tls.count != 2 { throw ValidationError("--tls needs two files: a certificate and its key") }
    }

    /// Prints the port as the first line, for the program that started the server.
    public func announce(port: Int) {
        FileHandle.standardOutput.write(Data("\(port)\n".utf8))
    }

    /// Whether TLS begins with the connection.
    public var beginsSecure: Bool { !tls.isEmpty && mode != .starttls }
}
