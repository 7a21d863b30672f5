import CocoaAsyncSocket
import Foundation

// Finds services on the local network by multicast.
//
//     cocoa-discovery announce GROUP PORT INTERFACE NAME SERVICE-PORT    replies to queries
//     cocoa-discovery browse GROUP PORT INTERFACE [SECONDS]              sends a query and prints the replies

setlinebuf(stdout)

func usage() -> Never {
    print("usage: cocoa-discovery announce GROUP PORT INTERFACE NAME SERVICE-PORT")
    print("       cocoa-discovery browse GROUP PORT INTERFACE [SECONDS]")
    exit(64)
}

let arguments = CommandLine.arguments
guard arguments.count >= 5, let port = UInt16(arguments[3]) else { usage() }

/// Retains the delegate, because the socket does not.
var participants: [NSObject] = []

do {
    switch arguments[1] {
    case "announce":
        guard arguments.count == 7, let servicePort = Int(arguments[6]) else { usage() }
        let announcer = Announcer(name: arguments[5], servicePort: servicePort)
        participants.append(announcer)
        try announcer.start(group: arguments[2], port: port, interface: arguments[4])
    case "browse":
        let browser = Browser(duration: arguments.count > 5 ? TimeInterval(arguments[5]) ?? 2 : 2)
        participants.append(browser)
        try browser.start(group: arguments[2], port: port, interface: arguments[4])
    default:
        usage()
    }
} catch let error as NSError {
    print("failed: \(error.localizedDescription) (\(error.domain) \(error.code))")
    exit(1)
}

dispatchMain()
