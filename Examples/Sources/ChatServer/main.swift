// A chat for members with a client certificate, whose common name is their name. It shows a delegate on the
// main actor, time limits, flow control for members who read slowly, and an orderly end on SIGTERM.
//
//     swift run --package-path Examples chat-server 4433
//
// Run it in a folder with server.pem and server.key, the server's certificate and key, and clients.pem, the
// authority of its members. Then:
//
//     openssl s_client -connect localhost:4433 -CAfile ca.pem -cert alice.pem -key alice.key -quiet
//
// A second argument sets the seconds after which a silent member is disconnected.

import Dispatch
import Foundation

let arguments = CommandLine.arguments
let port = arguments.dropFirst().first.flatMap(UInt16.init) ?? 4433
let limits = ChatServer.Limits(idleSeconds: arguments.dropFirst(2).first.flatMap(Double.init) ?? 300)
let server = ChatServer(limits: limits)
let termination = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .main)
termination.setEventHandler {
    MainActor.assumeIsolated { server.shutDown() }
}
termination.activate()
do {
    try server.start(onPort: port)
    dispatchMain()
} catch {
    log("cannot start: \(error)")
    exit(EXIT_FAILURE)
}

/// Prints a line at once, even to a pipe.
func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
