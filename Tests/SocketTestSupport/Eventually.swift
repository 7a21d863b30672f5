internal import Dispatch

/// Waits for a state that no event announces: looks each millisecond, on a timer, so that it takes no time
/// from others.
///
/// - Throws: `Unexpected` after five minutes: a busy machine takes its time.
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
        if start.duration(to: .now) > .seconds(300) { break }
    }
    throw Unexpected(description: "waited five minutes in vain until \(what)")
}
