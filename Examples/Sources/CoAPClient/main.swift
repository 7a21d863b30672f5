// Gets a resource over CoAP (RFC 7252), retransmitting the request until it is acknowledged.
//
//     swift run --package-path Examples coap-client 192.0.2.7 .well-known/core

import AsyncSockets
import Foundation

// Article: exchange
/// Sends a confirmable request and retransmits it with exponential backoff (RFC 7252, section 4.2). Returns
/// nil if there is no response.
func get(_ path: [String], from socket: AsyncUDPSocket) async throws -> CoAPMessage? {
    let token = Data((0..<8).map { _ in UInt8.random(in: 0...255) })
    let request = CoAPMessage(kind: .confirmable, code: CoAPMessage.get, number: .random(in: 0...UInt16.max), token: token)
    var timeout = Duration.seconds(2) * Double.random(in: 1...1.5)
    for _ in 0..<5 {
        try await socket.send(request.bytes(path: path))
        do {
            return try await withDeadline(timeout) { try await answer(to: request, from: socket) }
        } catch let error as AsyncSocketError where error.code == .deadlineExceeded {
            print("again")
            timeout *= 2
        }
    }
    return nil
}

/// Waits for the response, which arrives with the acknowledgement or in a message of its own. Returns nil
/// after a reset.
func answer(to request: CoAPMessage, from socket: AsyncUDPSocket) async throws -> CoAPMessage? {
    for try await datagram in socket.datagrams {
        guard let message = CoAPMessage(datagram.data) else { continue }
        if message.kind == .reset, message.number == request.number { return nil }
        guard message.token == request.token, message.code >= 0x40 else { continue }
        if message.kind == .confirmable {
            let acknowledgement = CoAPMessage(kind: .acknowledgement, code: 0, number: message.number, token: Data())
            try await socket.send(acknowledgement.bytes())
        }
        return message
    }
    return nil
}
// Article: end

let arguments = CommandLine.arguments
guard arguments.count >= 3 else {
    print("usage: coap-client <host> <path> [<port>]")
    exit(EXIT_FAILURE)
}
do {
    let path = arguments[2].split(separator: "/").map(String.init)
    let port = arguments.count > 3 ? Int(arguments[3]) ?? -1 : 5683
    let message = try await AsyncUDPSocket.withConnection(to: arguments[1], port: port) { socket in
        try await get(path, from: socket)
    }
    guard let message else {
        print("failed: the server does not answer")
        exit(EXIT_FAILURE)
    }
    print("\(message.description) \(String(decoding: message.payload, as: UTF8.self))")
} catch {
    print("failed: \(error)")
    exit(EXIT_FAILURE)
}
