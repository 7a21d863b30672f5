// Queries a DNS server for the IPv4 addresses of a name, and retries if there is no response.
//
//     swift run --package-path Examples dns-query www.example.org 192.0.2.53

import AsyncSockets
import Foundation

// Article: query
/// Sends the query up to three times. Returns nil if there is no response.
func ask(_ server: String, port: Int, _ query: DNSQuery) async throws -> [String]? {
    try await AsyncUDPSocket.withConnection(to: server, port: port) { socket in
        for timeout in [Duration.seconds(1), .seconds(2), .seconds(4)] {
            try await socket.send(query.bytes)
            do {
                return try await withDeadline(timeout) { try await answer(to: query, from: socket) }
            } catch let error as AsyncSocketError where error.code == .deadlineExceeded {
                print("no response within \(timeout)")
            }
        }
        return nil
    }
}

/// A connected socket receives datagrams only from its server. The source address can still be forged, so
/// responses to other queries are ignored.
func answer(to query: DNSQuery, from socket: AsyncUDPSocket) async throws -> [String]? {
    for try await datagram in socket.datagrams {
        if let addresses = query.addresses(in: datagram.data) { return addresses }
    }
    return nil
}
// Article: end

let arguments = CommandLine.arguments
guard arguments.count >= 3, let query = DNSQuery(name: arguments[1]) else {
    print("usage: dns-query <name> <address of a server> [<port>]")
    exit(EXIT_FAILURE)
}
do {
    let port = arguments.count > 3 ? Int(arguments[3]) ?? -1 : 53
    guard let addresses = try await ask(arguments[2], port: port, query) else {
        print("failed: the server does not answer")
        exit(EXIT_FAILURE)
    }
    print(addresses.isEmpty ? "no addresses" : addresses.joined(separator: "\n"))
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
