import Foundation
import Glibc
import SocketBuffers

@testable import AsyncSockets
@testable import SocketCore
@testable import SocketTLS

extension FuzzTarget {
    /// What a process receives from the process that it replaces: an offer with up to seven descriptors,
    /// ticket keys, and cookie secrets. Each descriptor is closed or handed over.
    static let handover = FuzzTarget(name: "handover", maximumLength: 4096) { input in
        var input = input
        let kind = input.byte()
        switch kind % 3 {
        case 0: try checkOffer(input.all(), descriptorCount: Int(kind / 3 % 8))
        case 1: try checkTicketKeys(input.all())
        default: try checkCookieSecrets(input.all())
        }
    }

    private static func checkOffer(_ bytes: [UInt8], descriptorCount: Int) throws {
        var (passed, kept): ([CInt], [CInt]) = ([], [])
        defer { for number in kept { close(number) } }
        for _ in 0..<descriptorCount {
            var pair: [CInt] = [-1, -1]
            guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0, &pair) == 0 else { break }
            passed.append(pair[0])
            kept.append(pair[1])
        }
        var parsed: HandoverOffer.Parsed?
        var failure: AsyncSocketError?
        do throws(AsyncSocketError) {
            parsed = try HandoverOffer.parse(PacketSocket.Packet(bytes: bytes, descriptors: passed))
        } catch {
            failure = error
        }
        if let parsed {
            let count = parsed.listeners.count + 1
            try require(count == passed.count, "\(count) of \(passed.count) descriptors are handed over")
            try require(kept.allSatisfy { !isClosed($0) }, "a descriptor of a valid offer is closed")
        } else {
            try require(failure?.code == .badConfiguration, "the error is \(String(describing: failure))")
        }
        parsed = nil
        try require(kept.allSatisfy { isClosed($0) }, "a descriptor stays open")
    }

    /// Whether the other end of a socket pair is closed.
    private static func isClosed(_ number: CInt) -> Bool {
        var byte: UInt8 = 0
        return recv(number, &byte, 1, 0) == 0
    }

    private static func checkTicketKeys(_ bytes: [UInt8]) throws {
        let now = 1_000_000
        guard let keys = try? bytes.withUnsafeBytes({ try TLSRotatingTicketKeys(records: $0, clock: { now }) }) else { return }
        let count = 1 + keys.keys.decryptionOnly.count
        try require(count <= 2, "there are \(count) keys")
        let records = keys.withRecords { Array($0) }
        let again = try records.withUnsafeBytes { try TLSRotatingTicketKeys(records: $0, clock: { now }) }
        try require(again.withRecords { Array($0) } == records, "the records change")
    }

    private static func checkCookieSecrets(_ bytes: [UInt8]) throws {
        let cookies = try DTLSCookies(clock: { 1_000_000 })
        let before = cookies.record
        guard cookies.adopt(bytes) else {
            return try require(cookies.record == before, "the secrets change although the record is invalid")
        }
        let again = try DTLSCookies(clock: { 1_000_000 })
        let record = cookies.record
        try require(again.adopt(record) && again.record == record, "the record changes")
    }
}
