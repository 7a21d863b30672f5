import AsyncSockets
import Foundation

/// A PostgreSQL session over TLS.
struct PostgresSession {
    let socket: AsyncSocket

    /// Logs in with channel binding. Fails if the server does not support it.
    func logIn(as user: String, to database: String, password: String) async throws {
        try await socket.write(.startup(user: user, database: database), as: PostgresFraming())
        // AuthenticationSASL contains zero-terminated names of mechanisms.
        let mechanisms = String(decoding: try await challenge(10), as: UTF8.self).split(separator: "\0").map(String.init)
        guard mechanisms.contains(SCRAM.mechanism) else {
            throw PostgresError("the server does not support channel binding, only \(mechanisms)")
        }
        // The only type that PostgreSQL supports.
        let kind = TLSChannelBinding.tlsServerEndPoint
        let scram = SCRAM(
            password: password, bindingName: kind.rawValue, binding: try socket.channelBinding(kind))
        var first = Data()
        first.append(text: SCRAM.mechanism)
        first.append(Data(number: scram.firstMessage.utf8.count))
        first.append(contentsOf: scram.firstMessage.utf8)
        try await socket.write(PostgresMessage("p", first), as: PostgresFraming())
        // The reply to AuthenticationSASLContinue (11), then AuthenticationSASLFinal (12).
        let (message, expected) = try scram.answer(to: String(decoding: try await challenge(11), as: UTF8.self))
        try await socket.write(PostgresMessage("p", Data(message.utf8)), as: PostgresFraming())
        guard SCRAM.isSignature(String(decoding: try await challenge(12), as: UTF8.self), expected) else {
            throw PostgresError("the server's signature is invalid")
        }
        _ = try await challenge(0)
        while try await receive().type != UInt8(ascii: "Z") {}
    }

    /// Returns the first column of the first row, or nil if there are no rows.
    func value(of query: String) async throws -> String? {
        var text = Data()
        text.append(text: query)
        try await socket.write(PostgresMessage("Q", text), as: PostgresFraming())
        var value: String?
        while true {
            let message = try await receive()
            switch message.type {
            case UInt8(ascii: "D"): value = value ?? firstColumn(of: message.body)
            case UInt8(ascii: "Z"): return value
            default: break
            }
        }
    }

    func terminate() async throws {
        try await socket.write(PostgresMessage("X", Data()), as: PostgresFraming())
    }

    /// A row consists of the number of columns (two bytes) and the columns, each with a length prefix.
    private func firstColumn(of row: Data) -> String? {
        guard let (length, rest) = row.dropFirst(2).leadingNumber, length >= 0 else { return nil }
        return String(decoding: rest.prefix(length), as: UTF8.self)
    }

    /// Receives an authentication message of the given kind and returns its contents.
    private func challenge(_ kind: Int) async throws -> Data {
        let message = try await receive()
        guard message.type == UInt8(ascii: "R"), let (value, rest) = message.body.leadingNumber, value == kind else {
            throw PostgresError("the server sent an unexpected authentication message")
        }
        return rest
    }

    private func receive() async throws -> PostgresMessage {
        guard let message = try await socket.readFrame(PostgresFraming()) else {
            throw PostgresError("the server closed the connection")
        }
        if message.type == UInt8(ascii: "E") { throw PostgresError(serverError: message.body) }
        return message
    }
}

/// An error in the exchange with the server.
struct PostgresError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }

    /// An error consists of zero-terminated fields that start with a letter. M is the message.
    init(serverError: Data) {
        let fields = String(decoding: serverError, as: UTF8.self).split(separator: "\0")
        self.init("the server says: \(fields.first { $0.hasPrefix("M") }?.dropFirst() ?? "nothing")")
    }
}
