import AsyncSockets
import FoundationEssentials
import SocketTestSupport
import SocketTestTraits
import Testing

/// Several MiB go in both directions at once, through every kind of read, and what arrives is compared with
/// what was written: no byte is lost, doubled or out of place. `Scripts/test-faults` runs this with system
/// calls that misbehave.
@Suite(.timeLimit(.patient)) struct EveryByteTests {
    private enum Channel: CaseIterable, Sendable {
        case plain
        case tls12
        case tls13
    }

    /// Random, and longer than any body with the place where it begins.
    private static let noise: [Data] = (UInt64(0)..<2).map { seed in
        var generator = SeededGenerator(seed: seed)
        let words = (0..<10_000).map { _ in generator.next() }
        return words.withUnsafeBytes { Data($0) }
    }

    /// The message of round `number`: a line, and a body whose length the line says.
    private struct Message {
        let line: Data
        let body: Data

        /// Each body begins at a place of its own in the noise.
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

    /// Reads as many messages, a line to its delimiter and a body to its length.
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
            let version: TLSVersion = channel == .tls12 ? .tls12 : .tls13
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
        // Only the end follows it.
        link.client.disconnectAfterWriting()
        link.server.readData(withTimeout: .patient, tag: 1)
        #expect(try await link.atServer.disconnected()?.code == .closedByPeer)
    }
}
