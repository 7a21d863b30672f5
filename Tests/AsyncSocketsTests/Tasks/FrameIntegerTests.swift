import AsyncSockets
import Foundation
import SocketTestSupport
import Testing

/// Integers in frames.
@Suite struct FrameIntegerTests {
    private func integer<Integer: FixedWidthInteger>(
        _ bytes: [UInt8], _ type: Integer.Type, at offset: Int = 0, width: Int? = nil, order: FrameByteOrder = .bigEndian
    ) -> Integer? {
        bytes.span.bytes.integer(type, at: offset, width: width, order: order)
    }

    @Test func bytesComeInBothOrders() {
        let bytes: [UInt8] = [0x81, 0x02, 0x03, 0x84]
        #expect(integer(bytes, UInt32.self) == 0x8102_0384)
        #expect(integer(bytes, UInt32.self, order: .littleEndian) == 0x8403_0281)
        #expect(integer(bytes, UInt32.self, width: 3) == 0x0081_0203)
        #expect(integer(bytes, UInt32.self, at: 1, width: 3, order: .littleEndian) == 0x0084_0302)
        #expect(integer(bytes, Int32.self, width: 3) == -0x7E_FDFD)
        #expect(integer(bytes, Int8.self, at: 3) == -0x7C)
        #expect(integer(bytes, UInt8.self, at: 3) == 0x84)
        #expect(integer(bytes, UInt16.self, at: 1) == 0x0203)
    }

    @Test func tooFewBytesAreNoInteger() {
        let bytes: [UInt8] = [1, 2, 3]
        #expect(integer(bytes, UInt32.self) == nil)
        #expect(integer(bytes, UInt32.self, at: 1, width: 3) == nil)
        #expect(integer(bytes, UInt8.self, at: 3) == nil)
        #expect(integer(bytes, UInt8.self, at: -1) == nil)
        #expect(integer(bytes, UInt8.self, at: .max) == nil)
        #expect(integer(bytes, UInt32.self, at: 0, width: 3) == 0x01_0203)
        #expect(integer([], UInt8.self) == nil)
    }

    @Test(arguments: [FrameByteOrder.bigEndian, .littleEndian])
    func whatIsAppendedIsReadAgain(_ order: FrameByteOrder) throws {
        try expectSame([UInt8](0...255), order)
        try expectSame([Int8.min, -1, 0, 1, .max], order)
        try expectSame([UInt16.min, 0x1234, .max], order)
        try expectSame([Int32.min, -0x12_3456, 0, 0x1234_5678, .max], order)
        try expectSame([UInt64.min, 0x0123_4567_89AB_CDEF, .max], order)
        try expectSame([Int128.min, -1, 0, .max], order)
    }

    private func expectSame<Integer: FixedWidthInteger>(_ values: [Integer], _ order: FrameByteOrder) throws {
        for value in values {
            for width in 1...Integer.bitWidth / 8 {
                var data = Data([0xAA])
                let place = Integer.bitWidth - width * 8
                guard (value << place) >> place == value else {
                    #expect(throws: AsyncSocketError.self) { try data.append(integer: value, width: width, order: order) }
                    #expect(data == Data([0xAA]))
                    continue
                }
                try data.append(integer: value, width: width, order: order)
                #expect(data.count == 1 + width)
                let read: Integer? = data.bytes.integer(at: 1, width: width, order: order)
                #expect(read == value)
            }
        }
    }

    /// A prefix in the other byte order, as in many binary protocols.
    @Test func aLengthMayComeInLittleEndian() throws {
        let framing = LengthPrefixed<UInt32>(order: .littleEndian)
        var bytes = Data()
        try framing.encode(Data("hello"), into: &bytes)
        #expect(bytes == Data([5, 0, 0, 0]) + Data("hello"))
        guard case .frame(let frame, let length) = try framing.decode(bytes.bytes) else {
            throw CocoaError(.coderReadCorrupt)
        }
        #expect(frame == Data("hello") && length == 9)
    }
}
