// Messages in JSON between a server and a client that comes back: frames, a heartbeat, and pauses between the
// attempts to connect. One program is both.
//
//     swift run --package-path Examples json-frames server 4436
//     swift run --package-path Examples json-frames client 4436
//
// A third argument sets the seconds of silence after which the client asks for a sign of life.

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
            log("cannot go on: \(error)")
            exit(EXIT_FAILURE)
        }
    }
}

/// Prints a line at once, even to a pipe.
func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
