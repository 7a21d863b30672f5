// Pipelines the commands in standard input to a Redis server and prints the replies.
//
//     swift run --package-path Examples redis-client localhost 6379 <commands.txt
//     swift run --package-path Examples redis-client localhost 6380 tls <commands.txt
//
// Each line is a command whose words are separated by spaces. To trust a CA of your own, set
// SSL_CERT_FILE=ca.pem in the environment.

import AsyncSockets
import Foundation
import RedisConnection

@main
struct RedisClient {
    static func main() async {
        let arguments = CommandLine.arguments
        guard (3...4).contains(arguments.count), let port = UInt16(arguments[2]) else {
            complain("usage: redis-client HOST PORT [tls] <COMMANDS")
            exit(EX_USAGE)
        }
        let commands = AnyIterator { readLine() }.filter { !$0.isEmpty }
        let tls: TLSClientSettings? = arguments.last == "tls" ? .client(serverName: arguments[1]) : nil
        do {
            try await AsyncSocket.withConnection(to: arguments[1], port: port, tls: tls) { socket in
                let redis = Redis(socket: socket)
                print("PING: \(text(of: try await redis.send("PING")))")
                for reply in try await redis.pipeline(commands) { print(text(of: reply)) }
            }
        } catch {
            complain("\(error)")
            exit(EXIT_FAILURE)
        }
    }

    private static func text(of value: RedisValue) -> String {
        switch value {
        case .simple(let text): text
        case .error(let text): "error: \(text)"
        case .integer(let number): "\(number)"
        case .bulk(let data?): "\"\(String(decoding: data, as: UTF8.self))\""
        case .array(let values?): "[\(values.map(text).joined(separator: ", "))]"
        case .bulk(nil), .array(nil): "nil"
        }
    }

    private static func complain(_ message: String) {
        FileHandle.standardError.write(Data("redis-client: \(message)\n".utf8))
    }
}
