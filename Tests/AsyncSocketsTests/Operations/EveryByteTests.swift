import AsyncSockets
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Transfers several MiB in both directions at the same time with every kind of read, and compares the
/// received data with the written data. No byte may be lost, duplicated or misplaced. `Scripts/checks/faults`
/// runs this with system calls that misbehave.
@Suite(.timeLimit(.patient)) struct EveryByteTests {
    private enum Channel: CaseIterable, Sendable {
        case plain
        case tls12
        case tls13
    }

    /// Random data, longer than any body plus its start offset.
    private static let noise: [Data] = (UInt64(0)..<2).map { seed in
        var generator = SeededGenerator(seed: seed)
        let words = (0..<10_000).map { _ in generator.next() }
        return words.withUnsafeBytes { Data($0) }
    }

    /// The message of round `number`: a line with the length of the body, and the body.
    private struct Message {
        let line: Data
        let body: Data

        /// Each body starts at a different offset in the noise.
        init(_ number: Int, seed: Int) {
            let length = number % 7 == 0 ? 70_000 + number : number * 37 % 4_000 + 1
            body = Data(EveryByteTests.noise[seed].dropFirst(number * 41).prefix(length))
            line = Data("\(number) \(length)\r\n".utf8)
        }
    }

    private static let rounds = 200

    /// Writes all messages of `seed`, and returns them.
    private func writeAll(to socket: AsyncSocket, seed: Int) -> Data {
        var all = Data()
        for number in 0..<Self.rounds {
            let message = Message(number, seed: seed)
            all += message.line + message.body
            socket.write(message.line, withTimeout: .patient, tag: 0)
            socket.write(message.body, withTimeout: .patient, tag: 0)
        }
        return all
    }

    /// Reads the same number of messages: each line up to its delimiter, each body by its length.
    private func readAll(from socket: AsyncSocket, _ recorder: Recorder) async throws -> Data {
        var all = Data()
        for number in 0..<Self.rounds {
            socket.readData(to: .lineEnd, withTimeout: .patient, maxLength: 64, tag: 0)
            let line = try await recorder.readData()
            all += line
            let words = String(decoding: line.dropLast(2), as: UTF8.self).split(separator: " ")
            try #require(words.first == "\(number)" && words.count == 2, "round \(number): \(words)")
            socket.readData(toLength: try #require(Int(words[1])), withTimeout: .patient, tag: 0)
            all += try await recorder.readData()
        }
        return all
    }

    @Test(arguments: Channel.allCases)
    private func everyByteArrivesOnceAndInItsPlace(_ channel: Channel) async throws {
        let link = try await Link.make()
        if channel != .plain {
            let version: TLSProtocolVersion = channel == .tls12 ? .tls12 : .tls13
            try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        }
        async let atServer = readAll(from: link.server, link.atServer)
        async let atClient = readAll(from: link.client, link.atClient)
        let fromClient = writeAll(to: link.client, seed: 0)
        let fromServer = writeAll(to: link.server, seed: 1)
        #expect(try await atServer == fromClient)
        #expect(try await atClient == fromServer)
        #expect(fromClient.count > 2 << 20)
        #expect(fromClient != fromServer)
        // Nothing but the end follows.
        link.client.disconnectAfterWriting()
        link.server.readData(withTimeout: .patient, tag: 1)
        #expect(try await link.atServer.disconnected()?.code == .closedByPeer)
    }
}
