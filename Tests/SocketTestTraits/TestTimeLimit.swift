internal import SocketTestSupport
package import Testing

extension TimeLimitTrait.Duration {
    /// The time limit of a test: twice as long as it waits for any one event, so that the wait fails first and
    /// names the event. Scripts/watch-tests ends a test that ignores this limit.
    package static var patient: TimeLimitTrait.Duration {
        .minutes(max(1, Int((2 * Patience.seconds / 60).rounded(.up))))
    }
}
