// A server and a reconnecting client that exchange JSON messages. Shows framing, heartbeats and backoff. One
// program contains both.
//
//     swift run --package-path Examples json-frames server 4436
//     swift run --package-path Examples json-frames client 4436
//
// The optional third argument is the heartbeat interval in seconds.

import AsyncSockets
import Foundation

@main
struct JSONFrames {
    static func main() async {
        let arguments = CommandLine.arguments.dropFirst()
        let port = arguments.dropFirst().first.flatMap(UInt16.init) ?? 4436
        let heartbeat = Duration.seconds(arguments.dropFirst(2).first.flatMap(Double.init) ?? 5)
        do {
            switch arguments.first {
            case "server": try await Server(patience: heartbeat * 3).run(onPort: port)
            case "client": try await Client(port: port, heartbeat: heartbeat).run()
            default:
                log("usage: json-frames server|client [PORT [SECONDS]]")
                exit(EX_USAGE)
            }
        } catch {
            log("failed: \(error)")
            exit(EXIT_FAILURE)
        }
    }
}

/// Prints a line without buffering, even to a pipe.
func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
