internal import CSimulation
internal import Glibc

/// What became of a run.
enum Outcome: CustomStringConvertible {
    case passed(digest: UInt64, steps: Int)
    case failed(String, digest: UInt64, steps: Int, made: [Choices.Key])
    /// A signal stopped the process of the run: a trap, or the time limit.
    case crashed(signal: Int32)

    var isFailure: Bool { if case .passed = self { false } else { true } }

    var made: [Choices.Key] { if case .failed(_, _, _, let made) = self { made } else { [] } }

    var description: String {
        switch self {
        case .passed(let digest, let steps): "passed \(String(digest, radix: 16)) \(steps)"
        case .failed(let text, let digest, let steps, let made):
            "FAILED \(text) (\(String(digest, radix: 16)), \(steps) steps, \(made.count) decisions)"
        case .crashed(let signal): signal == SIGALRM ? "FAILED no end after \(Zygote.secondsLimit) s" : "FAILED signal \(signal)"
        }
    }
}

/// Runs each seed in its own process. Each process is a copy of this one, so all runs start from the same
/// state.
enum Zygote {
    static let secondsLimit: UInt32 = 240
    /// The kind of all runs of this process.
    nonisolated(unsafe) static var kind: Run.Type = Scenario.self

    /// Creates the certificates and the event loops, and runs everything once that is created on first use.
    static func prepare() {
        alarm(secondsLimit)
        defer { alarm(0) }
        CSim_fix_calendar()
        CSim_seed_random(1)
        GlobalExecutor.replace()
        _ = (Certificates.client, Certificates.server)
        // Without switches, because a thread could hold the lock of a global value that another thread needs.
        for seed in 0..<UInt64(20) {
            let choices = Choices(seed: seed, isPlanOnly: true)
            if let violation = kind.init(choices, Trace(isPrinted: false)).run() {
                Report.abandonPreparation("seed \(seed): \(violation.description)")
            }
        }
    }

    /// A process that performs a run.
    struct Child {
        let seed: UInt64
        let process: pid_t
        fileprivate let pipe: Int32

        func outcome() -> Outcome {
            var text: [UInt8] = []
            var buffer = [UInt8](repeating: 0, count: 65_536)
            while case let count = read(pipe, &buffer, buffer.count), count > 0 { text += buffer[..<count] }
            close(pipe)
            var status: Int32 = 0
            waitpid(process, &status, 0)
            if status & 0x7F != 0 { return .crashed(signal: status & 0x7F) }
            return Report.parse(text) ?? .crashed(signal: 0)
        }
    }

    static func start(_ seed: UInt64, _ kept: Set<Choices.Key>? = nil, isPrinted: Bool = false) -> Child {
        var ends: [Int32] = [0, 0]
        precondition(pipe(&ends) == 0, "no pipe")
        let process = CSim_fork()
        precondition(process >= 0, "fork has failed")
        guard process == 0 else {
            close(ends[1])
            return Child(seed: seed, process: process, pipe: ends[0])
        }
        Report.pipe = ends[1]
        alarm(secondsLimit)
        let choices = Choices(seed: seed, kept: kept)
        let run = kind.init(choices, Trace(isPrinted: isPrinted))
        Report.finish(run.run(), run.scheduler)
    }

    static func run(_ seed: UInt64, _ kept: Set<Choices.Key>? = nil, isPrinted: Bool = false) -> Outcome {
        start(seed, kept, isPrinted: isPrinted).outcome()
    }
}

/// The report of a run to the process that started it.
enum Report {
    /// `nil` in the process that starts the others.
    nonisolated(unsafe) static var pipe: Int32?

    /// Exits because a run without switches violates an invariant.
    static func abandonPreparation(_ text: String) -> Never {
        print("the preparation has failed: \(text)")
        exit(3)
    }

    /// Exits from the process of the run.
    static func finish(_ violation: Violation?, _ scheduler: Scheduler) -> Never {
        guard let pipe else { abandonPreparation(violation?.description ?? "it does not end") }
        alarm(0)
        CSim_flush_output()
        let made = violation == nil ? "" : Choices.Key.text(scheduler.choices.made)
        let fields = ["\(scheduler.trace.digest)", "\(scheduler.steps)", made, violation?.description ?? ""]
        var text = Array(fields.joined(separator: "\n").utf8)[...]
        while !text.isEmpty {
            let count = text.withUnsafeBytes { write(pipe, $0.baseAddress, $0.count) }
            if count <= 0 { break }
            text = text.dropFirst(count)
        }
        CSim_exit(0)
    }

    /// Parses the bytes that `finish` wrote. Splits bytes, because a violation may quote "\r\n".
    static func parse(_ bytes: [UInt8]) -> Outcome? {
        let fields = bytes.split(separator: UInt8(ascii: "\n"), maxSplits: 3, omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        guard fields.count == 4, let digest = UInt64(fields[0]), let steps = Int(fields[1]) else { return nil }
        if fields[3].isEmpty { return .passed(digest: digest, steps: steps) }
        return .failed(fields[3], digest: digest, steps: steps, made: Choices.Key.parse(fields[2]).sorted())
    }
}

extension Choices.Key {
    /// Returns text such as `1:3,7;16:0`: the numbers of the decisions of each stream.
    static func text(_ keys: some Sequence<Choices.Key>) -> String {
        Dictionary(grouping: keys, by: \.stream).sorted { $0.key < $1.key }
            .map { stream, keys in "\(stream):" + keys.map(\.index).sorted().map(String.init).joined(separator: ",") }
            .joined(separator: ";")
    }

    static func parse(_ text: String) -> Set<Choices.Key> {
        var keys: Set<Choices.Key> = []
        for part in text.split(separator: ";") {
            let fields = part.split(separator: ":")
            guard fields.count == 2, let stream = UInt16(fields[0]) else { continue }
            for index in fields[1].split(separator: ",") {
                if let index = UInt32(index) { keys.insert(Choices.Key(stream: stream, index: index)) }
            }
        }
        return keys
    }
}
