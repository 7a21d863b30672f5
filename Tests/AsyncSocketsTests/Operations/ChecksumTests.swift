import AsyncSockets
import FoundationEssentials
import SocketTestSupport
import Testing

/// Several MiB go in both directions at once, through every kind of read, and both sides compute a checksum:
/// no byte is lost, doubled or out of place. `Scripts/test-faults` runs this with system calls that
/// misbehave.
@Suite(.timeLimit(.minutes(20))) struct ChecksumTests {
    private enum Channel: CaseIterable, Sendable {
        case plain
        case tls12
        case tls13
    }

    /// FNV-1a, which depends on every byte and its position.
    private struct Checksum: Equatable, Sendable {
        private(set) var count = 0
        private var value: UInt64 = 0xCBF2_9CE4_8422_2325

        mutating func add(_ data: Data) {
            count += data.count
            data.withUnsafeBytes { bytes in
                for byte in bytes { value = (value ^ UInt64(byte)) &* 0x100_0000_01B3 }
            }
        }
    }

    /// The message of round `number`: a line, and a body whose length the line says.
    private struct Message {
        let line: Data
        let body: Data

        init(_ number: Int, seed: UInt64) {
            var state = seed &+ UInt64(number) &* 0x9E37_79B9_7F4A_7C15
            let length = number % 7 == 0 ? 70_000 + number : number * 37 % 4_000 + 1
            body = Data(
                (0..<length).map { _ in
                    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                    return UInt8(truncatingIfNeeded: state >> 33)
                })
            line = Data("\(number) \(length)\r\n")
        }
    }

    private static let rounds = 200

    /// Writes all messages of `seed`, and returns their checksum.
    private func writeAll(to socket: AsyncSocket, seed: UInt64) -> Checksum {
        var checksum = Checksum()
        for number in 0..<Self.rounds {
            let message = Message(number, seed: seed)
            checksum.add(message.line)
            checksum.add(message.body)
            socket.write(message.line, withTimeout: 300, tag: 0)
            socket.write(message.body, withTimeout: 300, tag: 0)
        }
        return checksum
    }

    /// Reads as many messages, a line to its delimiter and a body to its length, then what comes until the
    /// end.
    private func readAll(from socket: AsyncSocket, _ recorder: Recorder) async throws -> Checksum {
        var checksum = Checksum()
        for number in 0..<Self.rounds {
            socket.readData(to: .lineEnd, withTimeout: 300, maxLength: 64, tag: 0)
            let line = try await recorder.readData()
            checksum.add(line)
            let words = String(decoding: line.dropLast(2), as: UTF8.self).split(separator: " ")
            try #require(words.first == "\(number)" && words.count == 2, "round \(number): \(words)")
            socket.readData(toLength: try #require(Int(words[1])), withTimeout: 300, tag: 0)
            checksum.add(try await recorder.readData())
        }
        return checksum
    }

    @Test(arguments: Channel.allCases)
    private func everyByteArrivesOnceAndInItsPlace(_ channel: Channel) async throws {
        let link = try await Link.make()
        if channel != .plain {
            let version: TLSVersion = channel == .tls12 ? .tls12 : .tls13
            try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        }
        async let atServer = readAll(from: link.server, link.atServer)
        async let atClient = readAll(from: link.client, link.atClient)
        let fromClient = writeAll(to: link.client, seed: 1)
        let fromServer = writeAll(to: link.server, seed: 2)
        #expect(try await atServer == fromClient)
        #expect(try await atClient == fromServer)
        #expect(fromClient.count > 2 << 20)
        #expect(fromClient != fromServer)
        // Only the end follows it.
        link.client.disconnectAfterWriting()
        link.server.readData(withTimeout: 300, tag: 1)
        #expect(try await link.atServer.disconnected()?.code == .closedByPeer)
    }
}
