// Queries a DNS server for the IPv4 addresses of a name, and retries if there is no response.
//
//     swift run --package-path Examples dns-query www.example.org 192.0.2.53

import AsyncSockets
import Foundation

// Article: query
/// Sends the query up to three times, and returns the addresses in the response. The source address of a
/// datagram can be forged, so responses to other queries are ignored.
func ask(_ server: String, port: Int, _ query: DNSQuery) async throws -> [String] {
    try await AsyncUDPSocket.withConnection(to: server, port: port) { socket in
        let response = try await socket.exchange(query.bytes) { query.addresses(in: $0.data) != nil }
        return query.addresses(in: response.data) ?? []
    }
}
// Article: end

let arguments = CommandLine.arguments
guard arguments.count >= 3, let query = DNSQuery(name: arguments[1]) else {
    print("usage: dns-query <name> <address of a server> [<port>]")
    exit(EXIT_FAILURE)
}
do {
    let port = arguments.count > 3 ? Int(arguments[3]) ?? -1 : 53
    let addresses = try await ask(arguments[2], port: port, query)
    print(addresses.isEmpty ? "no addresses" : addresses.joined(separator: "\n"))
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
