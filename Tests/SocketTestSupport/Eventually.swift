internal import Dispatch

/// Waits for a state that no event announces: looks each millisecond, on a timer, so that it takes no time
/// from others.
///
/// - Throws: `Unexpected` after a minute.
package func eventually(_ what: String, _ condition: () throws -> Bool) async throws {
    let (ticks, continuation) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
    let timer = DispatchSource.makeTimerSource()
    timer.setEventHandler { continuation.yield() }
    timer.schedule(deadline: .now(), repeating: .milliseconds(1))
    timer.activate()
    defer { timer.cancel() }
    let start = ContinuousClock.now
    for await _ in ticks {
        if try condition() { return }
        if start.duration(to: .now) > .seconds(60) { break }
    }
    throw Unexpected(description: "waited a minute in vain until \(what)")
}
