// Finds services on the local network, much like mDNS: a client sends a query to a multicast group, and the
// programs that offer the service reply to the client directly.
//
//     swift run --package-path Examples discovery offer printing "printer on the 2nd floor" &
//     swift run --package-path Examples discovery find printing
//
// The optional last argument is the name or address of an interface: discovery find printing eth0

import AsyncSockets
import Foundation

let group = "239.255.42.99"
let port: UInt16 = 42_099

// Article: offer
/// Replies to queries for a service until the task is cancelled.
func offer(_ service: String, _ description: String, onInterface interface: String?) async throws {
    try await AsyncUDPSocket.withSocket(
        boundTo: port,
        configure: {
            $0.isIPv6Enabled = false
            // Let other programs on this machine bind the same port.
            try $0.setOption(.reuseAddress, to: true)
            // Limits replies even if the source addresses of queries are forged.
            $0.rateLimit = SourceRateLimit(perSource: .init(perSecond: 10, burst: 20), total: .init(perSecond: 100, burst: 100))
        }
    ) { socket in
        try socket.joinMulticastGroup(group, onInterface: interface)
        print("offering \(service)")
        for try await question in socket.datagrams where question.data == Data("? \(service)".utf8) {
            try await socket.send(Data("! \(service) \(description)".utf8), inReplyTo: question)
        }
    }
}
// Article: end

// Article: find
/// Sends the query three times, and prints each service that replies within three seconds.
func find(_ service: String, onInterface interface: String?) async throws {
    var found: Set<SocketEndpoint> = []
    try await AsyncUDPSocket.withSocket(boundTo: 0, configure: { $0.isIPv6Enabled = false }) { socket in
        if let interface { try socket.setMulticastInterface(interface) }
        for _ in 0..<3 {
            try await socket.send(Data("? \(service)".utf8), to: group, port: port)
            do {
                try await withDeadline(.seconds(1)) {
                    for try await reply in socket.datagrams where reply.data.starts(with: Data("! \(service) ".utf8)) {
                        guard found.insert(reply.sender).inserted else { continue }
                        print(
                            "\(reply.sender.host ?? "?"): \(String(decoding: reply.data.dropFirst(service.utf8.count + 3), as: UTF8.self))"
                        )
                    }
                }
            } catch let error as AsyncSocketError where error.code == .deadlineExceeded {}
        }
    }
    if found.isEmpty { print("nothing was found") }
}
// Article: end

let arguments = Array(CommandLine.arguments.dropFirst())
do {
    switch (arguments.first, arguments.count) {
    case ("offer", 3...4): try await offer(arguments[1], arguments[2], onInterface: arguments.dropFirst(3).first)
    case ("find", 2...3): try await find(arguments[1], onInterface: arguments.dropFirst(2).first)
    default:
        print("usage: discovery offer <service> <description> [<interface>], or discovery find <service> [<interface>]")
        exit(EXIT_FAILURE)
    }
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
