internal import Dispatch
internal import Foundation

/// Waits for a condition that no event reports, by checking it once per millisecond. A timer schedules the
/// checks, so the wait uses almost no processor time.
///
/// - Throws: `Unexpected` after `Patience.seconds`.
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
        if start.duration(to: .now) > .patient { break }
    }
    throw Unexpected(description: "waited \(Patience.seconds) seconds in vain until \(what)")
}
