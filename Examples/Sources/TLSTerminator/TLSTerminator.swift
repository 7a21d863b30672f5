// Terminates TLS and forwards the connections in plaintext, for example to a web server. The program
// tls-proxy does the same with a delegate.
//
//     swift run --package-path Examples tls-terminator 8443 localhost 8080
//
// Run it in a folder with server.pem and server.key (the server's certificate and key). Then:
//
//     curl --cacert ca.pem https://localhost:8443/

import AsyncSockets
import Foundation

@main
struct TLSTerminator {
    let backendHost: String
    let backendPort: UInt16

    func run(onPort port: UInt16) async throws {
        let identity = try TLSIdentity(certificateFile: "server.pem", privateKeyFile: "server.key")
        let listener = try SocketListener(port: port, tls: .server(identity: identity), maximumConnections: 1_000)
        log("listening on port \(listener.localPort)")
        try await listener.run(onError: report) { client in
            // Article: relay
            try await AsyncSocket.withConnection(to: backendHost, port: backendPort, timeout: .seconds(10)) { backend in
                _ = try await client.relay(with: backend, idleTimeout: .seconds(300))
            }
            // Article: end
        }
    }

    private func report(_ error: any Error, of client: AsyncSocket) {
        log("\(client.connectedAddress.map { "\($0)" } ?? "a client"): \(error)")
    }

    static func main() async {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let port = UInt16(arguments[1]), let backendPort = UInt16(arguments[3]) else {
            log("usage: tls-terminator PORT BACKEND-HOST BACKEND-PORT")
            exit(EX_USAGE)
        }
        do {
            try await TLSTerminator(backendHost: arguments[2], backendPort: backendPort).run(onPort: port)
        } catch {
            log("cannot serve: \(error)")
            exit(EXIT_FAILURE)
        }
    }
}

/// Prints a line without buffering, even to a pipe.
func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
