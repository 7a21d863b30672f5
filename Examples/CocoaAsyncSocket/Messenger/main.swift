import CocoaAsyncSocket
import Foundation

// An instant messenger whose frames consist of a JSON header, CRLF and a body.
//
//     cocoa-messenger HOST PORT USER [HEARTBEAT-SECONDS]
//
// The input line "bob hello" sends "hello" to bob, and "bob <file" sends a file. The server in
// Counterparts/messenger_server.py forwards the messages.

setlinebuf(stdout)

let arguments = CommandLine.arguments
guard arguments.count >= 4, let port = UInt16(arguments[2]) else {
    print("usage: cocoa-messenger HOST PORT USER [HEARTBEAT-SECONDS]")
    exit(64)
}

let messenger = Messenger(
    host: arguments[1], port: port, user: arguments[3],
    heartbeatInterval: arguments.count > 4 ? TimeInterval(arguments[4]) ?? 30 : 30)
messenger.start()

DispatchQueue.global(qos: .background).async {
    while let line = readLine() {
        let words = line.split(separator: " ", maxSplits: 1).map(String.init)
        guard words.count == 2 else { continue }
        if words[1].hasPrefix("<") {
            let file = URL(fileURLWithPath: String(words[1].dropFirst()))
            guard let contents = try? Data(contentsOf: file) else {
                print("no such file")
                continue
            }
            messenger.send(contents, type: "file", to: words[0])
        } else {
            messenger.send(Data(words[1].utf8), type: "text", to: words[0])
        }
    }
    messenger.stop()
}

RunLoop.main.run()
