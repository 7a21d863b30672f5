// Sends each line of standard input over DTLS 1.2 and prints the replies.
//
//     swift run --package-path Examples dtls-client localhost 4434
//
// To trust a CA of your own, set SSL_CERT_FILE=ca.pem in the environment.

import AsyncSockets
import Foundation

let host = CommandLine.arguments.dropFirst().first ?? "localhost"
let port = CommandLine.arguments.dropFirst(2).first.flatMap(Int.init) ?? 4434
do {
    // Article: client
    try await AsyncUDPSocket.withConnection(to: host, port: port) { socket in
        let session = try await socket.startDTLS(settings: .client)  // encrypted from here on
        print("secure: \(session.protocolVersion), \(session.cipherSuite)")
        while let line = readLine(strippingNewline: false) {
            try await socket.send(Data(line.utf8))
            do {
                print(String(decoding: try await socket.receive(timeout: .seconds(2)).data, as: UTF8.self), terminator: "")
            } catch let error as AsyncSocketError where error.code == .readTimeout {
                print("no reply: the request or the reply was lost")
            }
        }
    }
    // Article: end
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
