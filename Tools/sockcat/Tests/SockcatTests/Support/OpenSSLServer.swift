import Foundation

@testable import SockcatCommands

/// The program `openssl s_server`, on a free port of 127.0.0.1.
final class OpenSSLServer: Sendable {
    let port: Int
    private let child: ChildProcess
    private let lines: LineReader

    /// Starts a server with the certificate server.pem and the key server.key, and returns when it accepts
    /// connections.
    init(_ arguments: String, in folder: TestFolder) async throws {
        let end = "-----END CERTIFICATE-----\n"
        let intermediates = try folder.text("server.pem").components(separatedBy: end).dropFirst()
        let chain = intermediates.joined(separator: end)
        try folder.write(chain, to: "intermediates.pem")
        let option = chain.isEmpty ? "" : "-cert_chain intermediates.pem"
        child = try ChildProcess(
            shell: """
                cd \(folder.path); exec openssl s_server -accept 127.0.0.1:0 -cert server.pem -key server.key \
                \(option) \(arguments) 2>&1
                """, environment: [:])
        lines = LineReader(child.output)
        while let line = try await lines.next() {
            guard line.hasPrefix("ACCEPT ") else { continue }
            port = line.split(separator: ":").last.flatMap { Int($0) } ?? 0
            return
        }
        throw Failure("openssl s_server did not start")
    }

    /// Returns the first line that contains a text.
    func line(containing text: String) async throws -> String { try await lines.line(containing: text) }

    /// Kills the server, so that it sends nothing to its peers.
    func kill() async {
        child.send(SIGKILL)
        _ = await child.wait()
    }

    /// Stops the server and returns its output.
    @discardableResult
    func stop() async throws -> String {
        child.terminate()
        var output = ""
        while let line = try await lines.next() { output += line + "\n" }
        _ = await child.wait()
        return output
    }
}
