import AsyncSockets
import Foundation

/// A conversation with a PostgreSQL server over a connection that has been upgraded to TLS.
struct PostgresSession {
    let socket: AsyncSocket

    /// Upgrades the connection: PostgreSQL's STARTTLS.
    func startTLS(with server: String) async throws {
        try await socket.write(.sslRequest, as: PostgresFraming())
        guard try await socket.read(exactly: 1) == Data("S".utf8) else {
            throw PostgresError("the server has no TLS")
        }
        try await socket.startTLS(settings: .client(serverName: server))
    }

    /// Logs in with a binding to this connection, and in no other way.
    func logIn(as user: String, to database: String, password: String) async throws {
        try await socket.write(.startup(user: user, database: database), as: PostgresFraming())
        // AuthenticationSASL: the mechanisms, each with a zero byte behind it.
        let mechanisms = String(decoding: try await challenge(10), as: UTF8.self).split(separator: "\0").map(String.init)
        guard mechanisms.contains(SCRAM.mechanism) else {
            throw PostgresError("the server offers no channel binding, only \(mechanisms)")
        }
        // The kind that PostgreSQL knows.
        let kind = TLSChannelBinding.tlsServerEndPoint
        let scram = SCRAM(
            password: password, bindingName: kind.rawValue, binding: try socket.channelBinding(kind))
        var first = Data()
        first.append(text: SCRAM.mechanism)
        first.append(Data(number: scram.firstMessage.utf8.count))
        first.append(contentsOf: scram.firstMessage.utf8)
        try await socket.write(PostgresMessage("p", first), as: PostgresFraming())
        // AuthenticationSASLContinue and AuthenticationSASLFinal.
        let (message, expected) = try scram.answer(to: String(decoding: try await challenge(11), as: UTF8.self))
        try await socket.write(PostgresMessage("p", Data(message.utf8)), as: PostgresFraming())
        guard SCRAM.isSignature(String(decoding: try await challenge(12), as: UTF8.self), expected) else {
            throw PostgresError("the server does not know the password")
        }
        _ = try await challenge(0)
        while try await receive().type != UInt8(ascii: "Z") {}
    }

    /// The first column of the first row; nil without a row.
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

    /// A row is the number of its columns, and the length of each before it.
    private func firstColumn(of row: Data) -> String? {
        guard let (length, rest) = row.dropFirst(2).leadingNumber, length >= 0 else { return nil }
        return String(decoding: rest.prefix(length), as: UTF8.self)
    }

    /// What an authentication message of that kind says.
    private func challenge(_ kind: Int) async throws -> Data {
        let message = try await receive()
        guard message.type == UInt8(ascii: "R"), let (value, rest) = message.body.leadingNumber, value == kind else {
            throw PostgresError("the server wants another kind of login")
        }
        return rest
    }

    private func receive() async throws -> PostgresMessage {
        guard let message = try await socket.readFrame(PostgresFraming()) else {
            throw PostgresError("the server has ended the conversation")
        }
        if message.type == UInt8(ascii: "E") { throw PostgresError(serverError: message.body) }
        return message
    }
}

/// Why there is no answer.
struct PostgresError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }

    /// Fields that begin with a letter and end with a zero byte; M is the message.
    init(serverError: Data) {
        let fields = String(decoding: serverError, as: UTF8.self).split(separator: "\0")
        self.init("the server says: \(fields.first { $0.hasPrefix("M") }?.dropFirst() ?? "nothing")")
    }
}
