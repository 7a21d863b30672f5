import CocoaAsyncSocket
import Foundation

// A client for cocoa-chat-server. Sends lines from standard input and prints those from the server.
//
//     cocoa-chat-client HOST PORT NAME

setlinebuf(stdout)

let arguments = CommandLine.arguments
guard arguments.count == 4, let port = UInt16(arguments[2]) else {
    print("usage: cocoa-chat-client HOST PORT NAME")
    exit(64)
}

let client = ChatClient(name: arguments[3])
client.connect(host: arguments[1], port: port)

Thread.detachNewThread {
    while let line = readLine() {
        DispatchQueue.main.async { client.send(line) }
    }
    DispatchQueue.main.async { client.leave() }
}

dispatchMain()
