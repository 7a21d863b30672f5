import AsyncSockets
import Foundation
import RedisConnection
import Synchronization

/// Session ticket keys that all servers of a Redis database share.
///
/// The database contains a key for each period, created by the first server that needs it. `SET … NX` is
/// atomic, so all servers use the same key. The key of the next period is created one period in advance, so
/// the clocks of the servers may differ by half a period. An attacker who reads the database or the traffic
/// to it can decrypt session tickets, and so recorded TLS 1.2 connections. This example connects to Redis
/// without TLS and without a password: use both in production.
final class RedisTicketKeys: TLSTicketKeySource {
    private let host: String
    private let port: UInt16
    /// How long a key is used to encrypt tickets, in seconds. It decrypts in the periods before and after.
    private let period: Int
    private let current: Mutex<TLSTicketKeys>

    /// Reads the keys.
    init(host: String, port: UInt16, period: Int) async throws {
        (self.host, self.port, self.period) = (host, port, period)
        current = Mutex(try await Self.read(host, port, period))
    }

    var keys: TLSTicketKeys { current.withLock { $0 } }

    /// Keeps the keys up to date until the task is cancelled. While the database cannot be reached, the last
    /// keys stay in use, and servers that are restarted do not start.
    func refresh() async throws {
        while true {
            try await Task.sleep(for: .seconds(period) / 4)
            do {
                let keys = try await Self.read(host, port, period)
                current.withLock { $0 = keys }
            } catch {
                try Task.checkCancellation()
                print("the ticket keys are not up to date: \(error)")
            }
        }
    }

    /// Reads the keys of the previous, this and the next period. Creates those of this and the next period if
    /// they do not exist.
    private static func read(_ host: String, _ port: UInt16, _ period: Int) async throws -> TLSTicketKeys {
        let now = Int(Date().timeIntervalSince1970) / period
        let create = [now, now + 1].map { "SET ticket-key:\($0) \(newKey()) NX EX \(4 * period)" }
        let read = (now - 1...now + 1).map { "GET ticket-key:\($0)" }
        let replies = try await withDeadline(.seconds(10)) {
            try await AsyncSocket.withConnection(to: host, port: port) { socket in
                try await Redis(socket: socket).pipeline(create + read)
            }
        }
        for case .error(let message) in replies { throw AsyncSocketError.malformedFrame("Redis replied \(message)") }
        let keys = try replies.suffix(3).map { try key(in: $0) }
        guard let current = keys[1] else { throw AsyncSocketError.malformedFrame("the key has expired") }
        return TLSTicketKeys(current: current, decryptionOnly: [keys[0], keys[2]].compactMap(\.self))
    }

    /// Returns nil if the database has no key for the period.
    private static func key(in reply: RedisValue) throws -> TLSTicketKey? {
        switch reply {
        case .bulk(nil): return nil
        case .bulk(let text?):
            guard let bytes = Data(base64Encoded: text) else { fallthrough }
            return try TLSTicketKey(bytes: Array(bytes))
        default: throw AsyncSocketError.malformedFrame("the reply \(reply) is not a ticket key")
        }
    }

    private static func newKey() -> String {
        var generator = SystemRandomNumberGenerator()
        return Data((0..<80).map { _ in UInt8.random(in: .min ... .max, using: &generator) }).base64EncodedString()
    }
}
