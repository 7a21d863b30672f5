import SocketTestSupport
import Testing

@testable import SocketTLS

/// A message that is collected from fragments in any order.
@Suite struct MessageFragmentTests {
    private static let type: UInt8 = 1
    private static let body = (0..<600).map { UInt8($0 & 0xFF) }

    /// Returns a record with fragments of a message.
    private static func record(
        _ parts: [(offset: Int, count: Int)], of body: [UInt8] = body, length: Int? = nil, number: Int = 0, type: UInt8 = type
    ) -> [UInt8] {
        var payload: [UInt8] = []
        for (offset, count) in parts {
            payload += [type] + three(length ?? body.count) + [0, UInt8(number)] + three(offset) + three(count)
            payload += body[offset..<offset + count]
        }
        return [22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 9, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)] + payload
    }

    private static func three(_ number: Int) -> [UInt8] {
        [UInt8(number >> 16 & 0xFF), UInt8(number >> 8 & 0xFF), UInt8(number & 0xFF)]
    }

    private func add(_ datagram: [UInt8], to fragments: inout MessageFragments) -> [UInt8]? {
        datagram.withUnsafeBytes { fragments.add($0) }
    }

    private var whole: [UInt8] { [Self.type] + Self.three(Self.body.count) + Self.body }

    @Test func anyOrderAndOverlapGivesTheMessage() {
        var dice = SeededGenerator(seed: 41)
        for _ in 0..<300 {
            var fragments = MessageFragments(of: Self.type, limit: 1024)
            var missing = Set(Self.body.indices)
            var result: [UInt8]?
            while !missing.isEmpty {
                let count = Int.random(in: 1...200, using: &dice)
                let offset = Int.random(in: 0...Self.body.count - count, using: &dice)
                #expect(result == nil)
                result = add(Self.record([(offset, count)]), to: &fragments)
                missing.subtract(offset..<offset + count)
            }
            #expect(result == whole)
        }
    }

    @Test func severalFragmentsArriveInOneDatagram() {
        var fragments = MessageFragments(of: Self.type, limit: 1024)
        let datagram = Self.record([(300, 300), (0, 100)]) + Self.record([(100, 200)])
        #expect(add(datagram, to: &fragments) == whole && fragments.datagrams == [datagram])
    }

    /// Fragments are ignored if they have no new bytes, belong to another message, or are impossible.
    @Test func uselessFragmentsAreNotKept() {
        var fragments = MessageFragments(of: Self.type, limit: 1024)
        #expect(add(Self.record([(0, 300)]), to: &fragments) == nil)
        let useless = [
            Self.record([(0, 300)]), Self.record([(100, 50)]), Self.record([(10, 0)]), Self.record([(300, 0)]),
            Self.record([(300, 300)], number: 1), Self.record([(300, 300)], length: 601), Self.record([(300, 300)], length: 500),
            Self.record([(300, 300)], type: 2), [22, 0xFE, 0xFD], [],
        ]
        for datagram in useless { #expect(add(datagram, to: &fragments) == nil) }
        #expect(fragments.datagrams.count == 1)
        #expect(add(Self.record([(300, 300)]), to: &fragments) == whole)
    }

    /// The number of fragments is limited, and so is the length of the message.
    @Test func fragmentsOfOneByteAreLimited() {
        var fragments = MessageFragments(of: Self.type, limit: 1024)
        for offset in stride(from: 0, to: 599, by: 2) { #expect(add(Self.record([(offset, 1)]), to: &fragments) == nil) }
        #expect(fragments.datagrams.count == 256)
        var short = MessageFragments(of: Self.type, limit: 599)
        #expect(add(Self.record([(0, 600)]), to: &short) == nil && short.datagrams.isEmpty)
    }

    @Test func aPartIsRecognizedByItsHeader() {
        let fragments = MessageFragments(of: Self.type, limit: 1024)
        for (datagram, isPart) in [
            (Self.record([(0, 10)]), true), (Self.record([(0, 10)], type: 2), false), (Self.record([(0, 0)]), false),
            (Self.record([(0, 10)], type: 2) + Self.record([(5, 10)]), true), ([], false),
        ] {
            #expect(datagram.withUnsafeBytes { fragments.isPart($0) } == isPart)
        }
    }
}
