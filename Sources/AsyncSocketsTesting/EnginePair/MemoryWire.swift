internal import SocketBuffers
internal import SocketTLS

/// One direction of an `EnginePair`, which transfers the output of one engine to the other.
final class MemoryWire {
    private(set) var original: [UInt8] = []
    private(set) var delivered: [UInt8] = []
    var isReset = false

    private let source: TLSEngine
    private let destination: TLSEngine
    private var plan: TamperingPlan
    private var underway: [TamperingPlan.Action]

    init(from source: TLSEngine, to destination: TLSEngine, _ plan: TamperingPlan) {
        self.source = source
        self.destination = destination
        self.plan = plan
        underway = self.plan.actions(for: [])
    }

    /// Delivers one segment, end of file or reset. Returns `false` if no action is pending or the wire is
    /// held.
    func carry() -> Bool {
        while !isReset {
            if underway.isEmpty { collect() }
            guard let next = underway.first else { return false }
            if case .hold(let signal) = next, !signal.hasFired { return false }
            underway.removeFirst()
            if deliver(next) { return true }
        }
        return false
    }

    /// Returns `false` for an expired hold, which delivers no data.
    private func deliver(_ action: TamperingPlan.Action) -> Bool {
        switch action {
        case .hold: return false
        case .forward(let bytes):
            delivered += bytes
            bytes.withUnsafeBytes { destination.received.append($0) }
        case .finish: destination.receiveEndOfFile()
        case .reset: isReset = true
        }
        return true
    }

    private func collect() {
        let bytes = Array(source.output.readableBytes)
        source.output.consume(bytes.count)
        original += bytes
        underway = plan.actions(for: bytes)
    }
}
