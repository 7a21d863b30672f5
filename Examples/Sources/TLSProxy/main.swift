// Terminates TLS and forwards the connections in plaintext, for example to a web server. Shows back-pressure:
// it reads from one side only after the previous bytes are written to the other, so a large download to a
// slow client uses little memory.
//
//     swift run --package-path Examples tls-proxy 8443 localhost 8080
//
// Run it in a folder with server.pem and server.key (the server's certificate and key). Then:
//
//     curl --cacert ca.pem https://localhost:8443/

import Dispatch
import Foundation

let arguments = CommandLine.arguments
guard arguments.count == 4, let port = UInt16(arguments[1]), let targetPort = UInt16(arguments[3]) else {
    log("usage: tls-proxy PORT TARGET-HOST TARGET-PORT")
    exit(EX_USAGE)
}
let proxy = TLSProxy(targetHost: arguments[2], targetPort: targetPort)
do {
    try proxy.start(onPort: port)
    dispatchMain()
} catch {
    log("cannot start: \(error)")
    exit(EXIT_FAILURE)
}

/// Prints a line without buffering, even to a pipe.
func log(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
