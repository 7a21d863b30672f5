import SocketBuffers
import SocketTestTraits
import Testing

@testable import SocketTLS

/// Ticket keys that a process hands over to its successor.
@Suite struct RotatingTicketKeysTests {
    private let now = Locked(1_000_000)

    private func keys() throws -> TLSRotatingTicketKeys {
        try TLSRotatingTicketKeys(clock: { [now] in now.withLock { $0 } })
    }

    private func wait(_ seconds: Int) { now.withLock { $0 += seconds } }

    /// A key encrypts for an hour, and decrypts for another hour.
    @Test func keysChangeEveryHour() throws {
        let keys = try keys()
        let first = keys.keys
        #expect(first.decryptionOnly.isEmpty)
        wait(3599)
        #expect(keys.keys.current.name == first.current.name)
        wait(1)
        let second = keys.keys
        #expect(second.current.name != first.current.name && second.decryptionOnly.map(\.name) == [first.current.name])
        wait(3599)
        #expect(keys.keys.decryptionOnly.map(\.name) == [first.current.name])
        wait(1)
        #expect(keys.keys.decryptionOnly.map(\.name) == [second.current.name])
        wait(10_000)
        #expect(keys.keys.decryptionOnly.isEmpty)
    }

    /// A successor has the same keys, with the same age.
    @Test(arguments: [0, 3600]) func aSuccessorContinues(_ age: Int) throws {
        let keys = try keys()
        wait(age)
        let own = keys.keys
        let bytes = keys.withRecords { Array($0) }
        #expect(bytes.count == (age == 0 ? 88 : 176))
        let copy = try bytes.withUnsafeBytes { try TLSRotatingTicketKeys(records: $0, clock: { [now] in now.withLock { $0 } }) }
        #expect(copy.withRecords { Array($0) } == bytes)
        wait(3600)
        #expect(copy.keys.decryptionOnly.map(\.name) == [own.current.name])
    }

    /// A key from the future, or from before the start of the machine, is not a key of another process.
    @Test(arguments: [-1, Int64.min, 1_000_001, .max]) func impossibleTimesAreRefused(_ birth: Int64) {
        let bytes = [UInt8](repeating: 1, count: 80) + withUnsafeBytes(of: birth.littleEndian) { Array($0) }
        #expect(throws: TLSError.self) {
            try bytes.withUnsafeBytes { try TLSRotatingTicketKeys(records: $0, clock: { 1_000_000 }) }
        }
    }

    @Test(arguments: [0, 1, 80, 87, 89, 175, 264]) func otherLengthsAreRefused(_ count: Int) {
        #expect(throws: TLSError.self) {
            try [UInt8](repeating: 1, count: count).withUnsafeBytes { try TLSRotatingTicketKeys(records: $0) }
        }
    }
}
