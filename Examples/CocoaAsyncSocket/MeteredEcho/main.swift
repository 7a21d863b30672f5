import CocoaAsyncSocket
import Foundation

// An echo server that uses a socket subclass to count bytes and limit lines.
//
//     cocoa-metered-echo PORT [MAX-BYTES-PER-LINE]

setlinebuf(stdout)

let arguments = CommandLine.arguments
guard arguments.count >= 2, let port = UInt16(arguments[1]) else {
    print("usage: cocoa-metered-echo PORT [MAX-BYTES-PER-LINE]")
    exit(64)
}
if arguments.count > 2, let limit = UInt(arguments[2]) { MeteredSocket.longestLine = limit }

let server = MeteredEcho()
do {
    try server.start(port: port)
} catch {
    print("failed: \(error.localizedDescription)")
    exit(1)
}

dispatchMain()
