import CocoaAsyncSocket
import Foundation

// A chat server that sends each line from a client to all others.
//
//     cocoa-chat-server PORT [IDLE-SECONDS]
//
// Port 0 lets the system choose a port. Connect with cocoa-chat-client or netcat.

setlinebuf(stdout)

let arguments = CommandLine.arguments
guard arguments.count >= 2, let port = UInt16(arguments[1]) else {
    print("usage: cocoa-chat-server PORT [IDLE-SECONDS]")
    exit(64)
}
let idleTime = arguments.count > 2 ? TimeInterval(arguments[2]) ?? 60 : 60
let server = ChatServer(idleTime: idleTime)

do {
    try server.start(port: port)
} catch {
    print("failed: \(error.localizedDescription)")
    exit(1)
}

signal(SIGTERM, SIG_IGN)
let termination = DispatchSource.makeSignalSource(signal: SIGTERM, queue: DispatchQueue.main)
termination.setEventHandler { server.stop() }
termination.resume()

RunLoop.main.run()
