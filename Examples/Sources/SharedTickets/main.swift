// Echoes lines over TLS. Servers that use the same Redis database resume each other's sessions. Ticket keys
// are replaced every hour.
//
//     swift run --package-path Examples shared-tickets localhost 6379 7007 server.pem server.key
//
// The last argument may be the lifetime of a key in seconds.

import AsyncSockets
import Foundation

let arguments = CommandLine.arguments
guard (6...7).contains(arguments.count), let redisPort = UInt16(arguments[2]), let port = UInt16(arguments[3]),
    let period = arguments.count == 7 ? Int(arguments[6]) : 3600, period >= 4
else {
    print("usage: shared-tickets REDIS-HOST REDIS-PORT PORT CERTIFICATE KEY [SECONDS]")
    exit(EX_USAGE)
}
do {
    let keys = try await RedisTicketKeys(host: arguments[1], port: redisPort, period: period)
    let identity = try TLSIdentity(certificateFile: arguments[4], privateKeyFile: arguments[5])
    var settings = TLSSettings.server(identity: identity)
    settings.sessionTickets = .issued(2, keys: keys)
    let listener = try SocketListener(port: port, interface: "127.0.0.1", tls: settings)
    print("serves port \(listener.localPort)")
    async let _ = keys.refresh()
    try await listener.run(untilSignals: [SIGTERM]) { socket in
        let isResumed = socket.tlsSession?.isResumed == true
        for try await line in socket.lines { try await socket.writeLine("\(line) \(isResumed ? "resumed" : "new")") }
    }
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
