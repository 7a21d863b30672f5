public import ArgumentParser
internal import Foundation

/// The command line that all servers have in common.
public struct ServerArguments: ParsableArguments {
    /// What the server does with the bytes of a connection; `Benchmarks/README.md` has the protocol of each.
    public enum Mode: String, ExpressibleByArgument, Sendable {
        case echo, lines, count, receive, source, starttls
    }

    /// What to do.
    @Option(help: "echo, lines, count, receive, source or starttls")
    public var mode: Mode
    /// A certificate's file and its key's; empty: plain.
    @Option(parsing: .upToNextOption, help: "The files of a certificate and its key, in PEM.")
    public var tls: [String] = []
    /// Where to listen, on 127.0.0.1.
    @Option(help: "The port; 0: one that is free.")
    public var port = 0

    /// For the parser.
    public init() {}

    /// What the parser cannot know by itself.
    public func validate() throws {
        if !tls.isEmpty && tls.count != 2 { throw ValidationError("--tls takes two files: certificate and key") }
    }

    /// Tells whoever started the server where it listens: its first line.
    public func announce(port: Int) {
        FileHandle.standardOutput.write(Data("\(port)\n".utf8))
    }

    /// Whether TLS begins with the connection.
    public var beginsSecure: Bool { !tls.isEmpty && mode != .starttls }
}
