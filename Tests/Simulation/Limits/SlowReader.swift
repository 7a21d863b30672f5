internal import CSimulation
internal import Glibc

/// The messages of a writer. Each has its number and its length in front, so that a message that was removed
/// from the queue differs from a message that was cut.
enum Message {
    static func bytes(_ number: Int, _ count: Int) -> [UInt8] {
        Array("\(number) \(count)\n".utf8) + (0..<count).map { UInt8(truncatingIfNeeded: number &* 31 &+ $0) }
    }
}

/// A peer that calls the kernel directly, and that pauses between its reads.
final class SlowReader: RunSide, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name = "reader"
    private let end: StreamEnd
    private let course: LimitRun
    private var received: [UInt8] = []
    private var hasFinished = false
    /// The messages that have arrived completely.
    private(set) var numbers: Set<Int> = []
    /// The messages that were written successfully.
    nonisolated(unsafe) static var succeeded: Set<Int> = []

    init(_ end: StreamEnd, _ course: LimitRun) {
        (self.end, self.course) = (end, course)
        Self.succeeded = []
    }

    func run() {
        CSim_set_simulated(false)
        let kernel = course.kernel
        reading: while true {
            course.scheduler.wait { [self] in end.readiness & EPOLLIN.rawValue != 0 }
            if course.pick(4, 1) == 1 { course.pause(UInt64([1, 20, 200][course.pick(3, 1)]) * 1_000_000) }
            switch end.receive([4_096, 1, 100][course.pick(3, 1)], kernel) {
            case .success([]): break reading
            case .success(let bytes): received += bytes
            case .failure(let failure) where [EAGAIN, EINTR].contains(failure.code): break
            case .failure: break reading
            }
        }
        end.close()
        kernel.close(end.descriptor)
        CSim_set_simulated(true)
        hasFinished = true
    }

    func disconnect() {
        CSim_set_simulated(false)
        end.fail(ECONNRESET, course.kernel)
        end.peer?.fail(ECONNRESET, course.kernel)
        CSim_set_simulated(true)
    }

    func complaintAtEnd() -> String? {
        if !hasFinished { return "the stream does not end" }
        if let complaint = parse() { return complaint }
        let missing = Self.succeeded.subtracting(numbers)
        return course.plan.isDisturbed || missing.isEmpty ? nil : "the messages \(missing.sorted()) are missing"
    }

    private func parse() -> String? {
        var rest = received[...]
        while !rest.isEmpty {
            guard let lineEnd = rest.firstIndex(of: Pattern.lineFeed) else { return nil }
            let fields = rest[..<lineEnd].split(separator: UInt8(ascii: " "))
                .compactMap { Int(String(decoding: $0, as: UTF8.self)) }
            guard fields.count == 2 else { return "there is no message at \(rest.startIndex)" }
            let message = Message.bytes(fields[0], fields[1])
            guard message.starts(with: rest.prefix(message.count)) else { return "message \(fields[0]) is altered" }
            if rest.count < message.count { return nil }
            if let last = numbers.max(), last >= fields[0] { return "message \(fields[0]) follows message \(last)" }
            numbers.insert(fields[0])
            rest = rest.dropFirst(message.count)
        }
        return nil
    }
}
