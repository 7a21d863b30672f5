internal import SocketTestSupport
package import Testing

extension TimeLimitTrait.Duration {
    /// The time limit of a whole test: three times the limit for a single event, and at least ten minutes, so
    /// that a missing event fails the test first, with a message that names it. Scripts/runner/watch-tests
    /// kills a test that ignores this limit.
    package static var patient: TimeLimitTrait.Duration {
        .minutes(max(10, Int((3 * Patience.seconds / 60).rounded(.up))))
    }
}
