import Foundation
import SocketTestSupport

@testable import AsyncSockets

/// The writes of a task, and of other threads at the same time.
struct TaskWriter: Sendable {
    enum Step: Sendable {
        case line(Int)
        case bytes(Int)
        case flush
        case yield
        /// Another thread writes this number of lines.
        case elsewhere(Int)
        /// Writes more than the kernel's buffers hold. Only then does the peer begin to read.
        case much

        static func random(_ dice: inout SeededGenerator) -> Step {
            let count = Int.random(in: 1...80, using: &dice)
            if count == 80 { return .much }
            return [.line(count), .line(count), .line(count), .bytes(count * count), .flush, .yield, .elsewhere(count)]
                .randomElement(using: &dice) ?? .flush
        }
    }

    /// What the peer should receive.
    struct Expectation: Sendable {
        fileprivate var own: [String] = []
        /// The number of lines that each of the other threads writes.
        fileprivate var others: [Int] = []

        /// The lines of each writer must be in order, and whole.
        func check(_ received: [String]) throws {
            var (own, others) = (own[...], Array(repeating: 0, count: others.count))
            for line in received {
                let words = line.split(separator: " ")
                if words.count == 3, words[0] == "other", let writer = Int(words[1]), others.indices.contains(writer) {
                    guard Int(words[2]) == others[writer] else { throw Unexpected(description: "\(line) is not in order") }
                    others[writer] += 1
                } else {
                    let expected = own.popFirst()
                    guard line == expected else {
                        throw Unexpected(
                            description: "received \(line.prefix(80)) instead of \(expected?.prefix(80) ?? "the end")")
                    }
                }
            }
            guard own.isEmpty, others == self.others else {
                throw Unexpected(description: "missing: \(own.count) own lines; others: \(others) of \(self.others)")
            }
        }
    }

    private let socket: AsyncSocket
    private let peer: TaskPeer
    private(set) var expected = Expectation()
    private(set) var log: [String] = []
    private var others: [Task<Void, any Error>] = []
    /// The approximate number of bytes written before the peer reads.
    private var byteCount = 0
    private var peerReads = false

    init(_ socket: AsyncSocket, _ peer: TaskPeer) {
        (self.socket, self.peer) = (socket, peer)
    }

    nonisolated(nonsending) mutating func perform(_ step: Step) async throws {
        log.append("\(step)")
        switch step {
        case .line(let count): try await socket.writeLine(note(count))
        case .bytes(let count): try await socket.write(note(count) + "\n")
        case .flush: socket.flush()
        case .yield: await Task.yield()
        case .elsewhere(let count): writeElsewhere(count)
        case .much: try await writeMuch()
        }
    }

    /// Returns the next line, at least `count` bytes long.
    private mutating func note(_ count: Int) -> String {
        let line = "line \(expected.own.count) " + String(repeating: "+", count: count)
        expected.own.append(line)
        byteCount += count
        // The kernel's buffers have more room than that.
        if byteCount > 64 * 1024 { letPeerRead() }
        return line
    }

    private mutating func writeElsewhere(_ count: Int) {
        let writer = expected.others.count
        expected.others.append(count)
        others.append(
            Task.detached { [socket] in
                for number in 0..<count { try await socket.writeLine("other \(writer) \(number)") }
            })
    }

    private nonisolated(nonsending) mutating func writeMuch() async throws {
        let lines = (0..<600).map { _ in note(0) + String(repeating: "+", count: 8_000) }
        for index in lines.indices { expected.own[expected.own.count - lines.count + index] = lines[index] }
        let writing = Task(executorPreference: socket.executor) { [socket] in
            for line in lines { try await socket.writeLine(line) }
        }
        if !peerReads { try await eventually("the kernel is full") { socket.writeProgress != nil } }
        letPeerRead()
        try await writing.value
    }

    private mutating func letPeerRead() {
        peerReads = true
        peer.beginReading()
    }

    /// Lets the peer read, and returns when the other threads have written their lines.
    nonisolated(nonsending) mutating func settle() async throws {
        letPeerRead()
        for task in others { try await task.value }
        others = []
    }
}
