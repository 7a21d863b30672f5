package import AsyncSocketsTesting
internal import Dispatch
internal import Foundation

/// Seconds: five minutes, since a busy machine takes its time. Scripts/mutants gives less, because it looks
/// for hangs.
private let patience = ProcessInfo.processInfo.environment["TEST_PATIENCE"].flatMap { Double($0) } ?? 300

extension Duration {
    /// As long as `eventually` waits: for what a fault would keep waiting.
    package static let patient = Duration.seconds(patience)
}

extension WaitLimit {
    package static let patient = WaitLimit(timeout: .patient)
}

/// Waits for a state that no event announces: looks each millisecond, on a timer, so that it takes no time
/// from others.
///
/// - Throws: `Unexpected` when `patience` is over.
package func eventually(_ what: String, _ condition: () async throws -> Bool) async throws {
    let (ticks, continuation) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
    let timer = DispatchSource.makeTimerSource()
    timer.setEventHandler { continuation.yield() }
    timer.schedule(deadline: .now(), repeating: .milliseconds(1))
    timer.activate()
    defer { timer.cancel() }
    let start = ContinuousClock.now
    for await _ in ticks {
        if try await condition() { return }
        if start.duration(to: .now) > .seconds(patience) { break }
    }
    throw Unexpected(description: "waited \(patience) seconds in vain until \(what)")
}
