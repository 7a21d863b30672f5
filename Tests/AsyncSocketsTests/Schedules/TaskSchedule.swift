import Foundation
import SocketBuffers
import SocketTestSupport

@testable import AsyncSockets

/// A task that reads and writes on its loop while its peer does the same. After each step, what the task has
/// read is compared with what the peer has sent. Finally, what the peer has received is compared with what
/// was written.
struct TaskSchedule: Sendable {
    enum Step: Sendable {
        case read(TaskReader.Step)
        case write(TaskWriter.Step)
        /// Reads the rest of the plaintext lines, and upgrades within the loop over them.
        case startTLS
    }

    enum Kind: CaseIterable, Sendable {
        case plain, secure, upgraded
        /// One task reads, and another writes.
        case twoTasks
    }

    let kind: Kind
    /// Whether all steps are performed within `withDeadline(_:_:)`.
    let hasDeadline: Bool
    /// Whether the peer's lines must be buffered before the first step.
    private let isBuffered: Bool
    private let course: Course<Step>
    private let dice: SeededGenerator

    init(seed: UInt64) {
        var dice = SeededGenerator(seed: seed)
        kind = Kind.allCases.randomElement(using: &dice) ?? .plain
        hasDeadline = Bool.random(using: &dice)
        isBuffered = false
        course = Course(random: SeededGenerator(seed: dice.next()), count: 1...40)
        self.dice = dice
    }

    init(_ steps: [Step], _ kind: Kind) {
        (self.kind, hasDeadline, isBuffered) = (kind, false, true)
        course = Course(fixed: steps)
        dice = SeededGenerator(seed: 1)
    }

    // MARK: - Running

    func run() async throws {
        let pair = try await SocketPair(isSecure: kind == .secure)
        let (socket, peer) = (
            pair.server, TaskPeer(pair.client, isUpgraded: kind == .upgraded, lineCount: isBuffered ? 60...60 : 0...60, dice)
        )
        let playing = Task { try await peer.play() }
        defer {
            peer.beginReading()
            playing.cancel()
        }
        if isBuffered {
            try await socket.turn("lines are buffered") { $0.data.reads.preBuffer.count >= 10_000 }
        }
        let performing = Task(executorPreference: socket.executor) {
            var driver = TaskDriver(socket, peer)
            do {
                if hasDeadline {
                    try await withDeadline(.patient) { try await perform(&driver) }
                } else {
                    try await perform(&driver)
                }
            } catch {
                socket.disconnect()
                throw Unexpected(description: "\(error)\n\(driver.log.joined(separator: "; "))")
            }
            return driver.writer.expected
        }
        let expected = try await performing.value
        try expected.check(await playing.value)
    }

    private nonisolated(nonsending) func perform(_ driver: inout TaskDriver) async throws {
        if kind == .twoTasks { try await performInTwoTasks(&driver) } else { try await performInTurn(&driver) }
        try await driver.finish()
    }

    private nonisolated(nonsending) func performInTurn(_ driver: inout TaskDriver) async throws {
        var course = course
        while let step = course.next(makeStep) {
            switch step {
            case .read(let step): try await driver.reader.perform(step)
            case .write(let step): try await driver.writer.perform(step)
            case .startTLS: try await driver.startTLS()
            }
        }
        try await driver.startTLS()
    }

    private nonisolated(nonsending) func performInTwoTasks(_ driver: inout TaskDriver) async throws {
        var (course, reads, writes) = (course, [TaskReader.Step](), [TaskWriter.Step]())
        while let step = course.next(makeStep) {
            switch step {
            case .read(let step): reads.append(step)
            case .write(let step): writes.append(step)
            case .startTLS: break
            }
        }
        let (readSteps, writeSteps, begun) = (reads, writes, driver)
        async let reader = {
            var reader = begun.reader
            for step in readSteps { try await reader.perform(step) }
            return reader
        }()
        for step in writeSteps { try await driver.writer.perform(step) }
        driver.reader = try await reader
    }

    private func makeStep(_ dice: inout SeededGenerator) -> Step? {
        switch Int.random(in: 0..<40, using: &dice) {
        case 0: .startTLS
        case 1..<20: .read(.random(&dice))
        default: .write(.random(&dice))
        }
    }
}

/// The two directions of the task that is tested.
struct TaskDriver: Sendable {
    private let socket: AsyncSocket
    private let peer: TaskPeer
    var reader: TaskReader
    var writer: TaskWriter
    private var isUpgraded = false

    init(_ socket: AsyncSocket, _ peer: TaskPeer) {
        (self.socket, self.peer) = (socket, peer)
        reader = TaskReader(socket, peer.phases[0], isLast: peer.phases.count == 1)
        writer = TaskWriter(socket, peer)
    }

    var log: [String] { reader.log + writer.log }

    /// Has no effect if the schedule has no upgrade, or if the connection has been upgraded.
    nonisolated(nonsending) mutating func startTLS() async throws {
        guard peer.phases.count > 1, !isUpgraded else { return }
        isUpgraded = true
        try await writer.settle()
        for try await line in socket.lines {
            guard line == TaskPeer.request else {
                try reader.check(line)
                continue
            }
            // The second write is collected, so it is sent by the upgrade.
            try await writer.perform(.line(1))
            try await socket.writeLine(TaskPeer.consent)
            try await socket.startTLS(settings: TestCertificates.server())
            break
        }
        try reader.checkEnd()
        reader = TaskReader(socket, peer.phases[1], isLast: true, log: reader.log + ["TLS"])
    }

    nonisolated(nonsending) mutating func finish() async throws {
        try await writer.settle()
        for try await line in socket.lines { try reader.check(line) }
        try reader.checkEnd()
        socket.closeWriteStream()
    }
}
