import SocketTLS
import Testing

/// Records that a client has sent before a server's decision about its certificate.
@Suite struct ClientRecordTests {
    private static func record(_ type: UInt8, _ count: Int) -> [UInt8] {
        [type, 3, 3, UInt8(count >> 8), UInt8(count & 0xFF)] + [UInt8](repeating: 23, count: count)
    }

    private static let (change, alert, handshake, data): (UInt8, UInt8, UInt8, UInt8) = (20, 21, 22, 23)

    private func holdData(_ records: [UInt8], sealedAlertLength: Int? = nil) -> Bool {
        records.withUnsafeBytes { ClientRecords.holdData($0, sealedAlertLength: sealedAlertLength) }
    }

    @Test func theTypesOfTLS12RecordsAreVisible() {
        let end = Self.record(Self.change, 1) + Self.record(Self.handshake, 40)
        for records in [[], end, Self.record(Self.alert, 26), end + Self.record(Self.alert, 26), [Self.handshake, 3, 3]] {
            #expect(!holdData(records))
        }
        let data = Self.record(Self.data, 300)
        for records in [
            data, end + data, end + data + Self.record(Self.alert, 26), Array(data.prefix(5)), end + Array(data.prefix(100)),
        ] {
            #expect(holdData(records))
        }
        // The data has not arrived with its header.
        #expect(!holdData(end + data.prefix(4)))
    }

    /// The length of a record with an alert is 24 bytes, or 16 with an 8-byte tag.
    @Test(arguments: [24, 16]) func onlyAnAlertHasItsLengthInTLS13(length: Int) {
        #expect(!holdData([], sealedAlertLength: length))
        #expect(!holdData(Self.record(Self.data, length - 5), sealedAlertLength: length))
        for count in [length - 6, length - 4, 300] {
            #expect(holdData(Self.record(Self.data, count), sealedAlertLength: length))
        }
        #expect(holdData(Self.record(Self.data, 30) + Self.record(Self.data, length - 5), sealedAlertLength: length))
    }
}
