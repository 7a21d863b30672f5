import AsyncSocketsTesting
import Glibc
import SocketTestSupport
import StartTLSProtocols

@testable import AsyncSockets

/// The messages of a dialogue, recorded from both sides of the protocol. An attacker replays one side.
struct Rehearsal: Sendable {
    enum Message: Sendable {
        case client([UInt8]), server([UInt8])
    }

    private(set) var messages: [Message] = []

    init(_ sides: DialogueTests.Sides) throws {
        var (client, server) = (try StartTLSDialogue(client: sides.client), try StartTLSDialogue(server: sides.server))
        var (toClient, toServer) = (Self.bytes(server.start()), Self.bytes(client.start()))
        note(toClient, toServer)
        while !toClient.isEmpty || !toServer.isEmpty {
            let (fromServer, fromClient) = (toClient, toServer)
            toServer = fromServer.isEmpty ? [] : Self.bytes(try client.receive(fromServer))
            toClient = fromClient.isEmpty ? [] : Self.bytes(try server.receive(fromClient))
            note(toClient, toServer)
        }
    }

    private mutating func note(_ fromServer: [UInt8], _ fromClient: [UInt8]) {
        if !fromServer.isEmpty { messages.append(.server(fromServer)) }
        if !fromClient.isEmpty { messages.append(.client(fromClient)) }
    }

    private static func bytes(_ step: StartTLSStep) -> [UInt8] {
        switch step {
        case .send(let bytes), .startTLS(let bytes, _): bytes
        }
    }

    /// The last message of the attacker's side, and the messages before it.
    private func parts(isClient: Bool) throws -> (before: ArraySlice<Message>, last: [UInt8], after: ArraySlice<Message>) {
        let index = messages.lastIndex { message in
            switch message {
            case .client: isClient
            case .server: !isClient
            }
        }
        guard let index else { throw Unexpected(description: "this side sends nothing") }
        switch messages[index] {
        case .client(let last), .server(let last): return (messages[..<index], last, messages[(index + 1)...])
        }
    }

    /// The last message of the attacker's side.
    func last(ofClient isClient: Bool) throws -> [UInt8] { try parts(isClient: isClient).last }

    /// The messages that the victim sends after the attacker's last message.
    func answer(toClient isClient: Bool) throws -> [UInt8] {
        try parts(isClient: isClient).after.flatMap { message in
            switch message {
            case .client(let bytes), .server(let bytes): bytes
            }
        }
    }

    /// Exchanges all messages before the attacker's last one. The start of a message may differ from the
    /// rehearsal: an XMPP stream has a random ID.
    func lead(_ attacker: RawSocket, asClient isClient: Bool) async throws {
        for message in try parts(isClient: isClient).before {
            switch message {
            case .client(let bytes), .server(let bytes):
                let isOwn = if case .client = message { isClient } else { !isClient }
                if isOwn { try attacker.send(bytes) } else { _ = try await attacker.received(through: bytes.suffix(20)) }
            }
        }
    }
}
