// Forwards TLS connections by the server name that the client requests, without decrypting them, so it needs
// no certificate.
//
//     swift run --package-path Examples name-router 8443 a.example=9001 b.example=9002
//
// Then, with TLS servers on the ports 9001 and 9002:
//
//     curl --connect-to a.example:443:localhost:8443 https://a.example/

import AsyncSockets
import Foundation

let arguments = CommandLine.arguments.dropFirst()
let ports = arguments.dropFirst().reduce(into: [String: UInt16]()) { ports, route in
    let parts = route.split(separator: "=")
    if parts.count == 2 { ports[parts[0].lowercased()] = UInt16(parts[1]) }
}
guard let port = arguments.first.flatMap({ UInt16($0) }), !ports.isEmpty else {
    log("usage: name-router PORT NAME=PORT …")
    exit(EX_USAGE)
}
do {
    let listener = try SocketListener(port: port, maximumConnections: 1_000)
    log("listening on port \(listener.localPort)")
    try await listener.run(onError: { error, _ in log("\(error)") }) { client in
        let start = try await client.readFrame(TLSClientHelloFraming(), timeout: .seconds(10))
        let name = start?.hello.serverName?.lowercased() ?? ""
        guard let start, let port = ports[name] else {
            // The alert unrecognized_name (RFC 6066, section 3).
            return try await client.write([21, 3, 3, 0, 2, 2, 112])
        }
        try await AsyncSocket.withConnection(to: "localhost", port: port, timeout: .seconds(10)) { server in
            try await server.write(start.bytes)
            try await client.relay(with: server, idleTimeout: .seconds(300))
        }
    }
} catch {
    log("failed: \(error)")
    exit(EXIT_FAILURE)
}

/// Prints a line without buffering, even to a pipe.
@Sendable func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
