// Echoes lines over TLS. A new process with the same path takes the port over while this process is running,
// without refusing a connection.
//
//     swift run --package-path Examples restarting-server /run/user/1000/echo 7007 server.pem server.key
//
// Start it again with the same arguments to replace it. SIGTERM stops it.

import AsyncSockets
import Foundation

let arguments = CommandLine.arguments.dropFirst()
guard arguments.count == 4, let port = Int(arguments[2]) else {
    print("usage: restarting-server PATH PORT CERTIFICATE KEY")
    exit(64)
}
let path = arguments[1]
do {
    let identity = try TLSIdentity(certificateFile: arguments[3], privateKeyFile: arguments[4])
    // Article: restart
    let restart = try await HotRestart(path: path)
    var settings = TLSSettings.server(identity: identity)
    settings.sessionTickets = .issued(2, keys: restart.ticketKeys)
    let inherited = restart.descriptors(named: "echo")
    let listener =
        inherited.isEmpty
        ? try SocketListener(port: port, interface: "127.0.0.1", tls: settings)
        : try SocketListener(inherited: inherited, tls: settings)
    try await restart.takeOver(["echo": listener])
    async let isReplaced = restart.untilReplaced()
    print("process \(getpid()) serves port \(listener.localPort)")
    try await listener.run(untilSignals: [SIGTERM]) { socket in
        for try await line in socket.lines { try await socket.writeLine(line) }
    }
    print(try await isReplaced ? "replaced" : "stopped")
    // Article: end
} catch {
    print("failed: \(error)")
    exit(1)
}
