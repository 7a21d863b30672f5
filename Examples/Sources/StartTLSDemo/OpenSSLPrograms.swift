internal import AsyncSocketsTesting
internal import Foundation

/// `openssl s_server`, which echoes each line reversed.
final class OpenSSLServer {
    let port: UInt16
    private let process: ChildProcess

    init(_ stage: Stage) throws {
        let files = try stage.server.write(to: stage.folder)
        let root = try stage.authority.writeRoot(to: stage.folder)
        port = try RawSocket.listening().localPort()
        process = try ChildProcess([
            "openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", files.certificate, "-cert_chain", files.certificate,
            "-key", files.key, "-CAfile", root, "-Verify", "3", "-verify_return_error", "-rev", "-quiet",
        ])
        try RawSocket.waitUntilListening(on: port, seconds: 10)
    }

    /// Stops the program and waits for it to exit.
    func stop() async {
        process.stop()
        _ = await process.exitStatus()
    }
}

/// `openssl s_client -starttls smtp`, which sends the given lines after the handshake.
final class OpenSSLClient {
    private let process: ChildProcess

    init(_ stage: Stage, port: UInt16, lines: [String]) throws {
        let files = try stage.client.write(to: stage.folder)
        let root = try stage.authority.writeRoot(to: stage.folder)
        process = try ChildProcess([
            "openssl", "s_client", "-connect", "127.0.0.1:\(port)", "-starttls", "smtp", "-servername", "localhost",
            "-verify_hostname", "localhost", "-verify_return_error", "-CAfile", root,
            "-cert", files.certificate, "-cert_chain", files.certificate, "-key", files.key, "-quiet", "-crlf",
        ])
        try process.input.write(contentsOf: Data(lines.map { "\($0)\n" }.joined().utf8))
    }

    func exitStatus() async -> Int32 {
        await process.exitStatus()
    }
}
