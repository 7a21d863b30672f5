import Foundation
import SocketTestSupport

@testable import AsyncSockets

/// The peer of a task that is tested. It sends lines in random pieces, and upgrades between two phases.
struct TaskPeer: Sendable {
    static let request = "STARTTLS"
    static let consent = "220 ready"

    private let socket: AsyncSocket
    /// The lines of each phase without the request to upgrade.
    let phases: [Data]
    private let dice: SeededGenerator
    /// Finishes when the peer may read.
    private let gate = AsyncStream<Void>.makeStream()

    init(_ socket: AsyncSocket, isUpgraded: Bool, lineCount: ClosedRange<Int>, _ dice: SeededGenerator) {
        var dice = dice
        self.socket = socket
        phases = (0..<(isUpgraded ? 2 : 1)).map { Self.text(of: $0, lineCount, &dice) }
        self.dice = dice
    }

    private static func text(of phase: Int, _ lineCount: ClosedRange<Int>, _ dice: inout SeededGenerator) -> Data {
        var text = ""
        for number in 0..<Int.random(in: lineCount, using: &dice) {
            let length = [0, 5, 60, 60, 60, 3_000].randomElement(using: &dice) ?? 0
            text += length == 0 ? "" : "\(phase).\(number) " + String(repeating: "-", count: length)
            text += Bool.random(using: &dice) ? "\r\n" : "\n"
        }
        return Data(text.utf8)
    }

    func beginReading() { gate.continuation.finish() }

    /// Returns the received lines.
    func play() async throws -> [String] {
        var received: [String] = []
        for (number, text) in phases.enumerated() {
            let isLast = number == phases.count - 1
            async let sending: Void = send(isLast ? text : text + Data("\(Self.request)\r\n".utf8), isLast: isLast)
            for await _ in gate.stream {}
            while let line = try await socket.readLine() {
                if line == Self.consent { break }
                received.append(line)
            }
            try await sending
            if !isLast { try await socket.startTLS(settings: TestCertificates.client()) }
        }
        return received
    }

    private func send(_ text: Data, isLast: Bool) async throws {
        var (dice, rest) = (dice, text)
        while !rest.isEmpty {
            let count = [1, 10, 200, 2_000, 20_000].randomElement(using: &dice) ?? 1
            try await socket.write(rest.prefix(count))
            rest = rest.dropFirst(count)
            for _ in 0..<Int.random(in: 0...4, using: &dice) { await Task.yield() }
        }
        if isLast { socket.closeWriteStream() }
    }
}
