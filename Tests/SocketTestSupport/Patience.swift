package import AsyncSocketsTesting
internal import Foundation

/// How long tests wait for an event that should arrive, in seconds: five minutes, because a busy machine can
/// take minutes for a handshake. `TEST_PATIENCE` overrides it; Scripts/mutants sets a few seconds, because it
/// looks for hangs.
///
/// Every test that waits takes its limit from here, as `.patient`. The time limit of a suite is twice as long
/// (`TestTimeLimit`).
package enum Patience {
    package static let seconds = ProcessInfo.processInfo.environment["TEST_PATIENCE"].flatMap { Double($0) } ?? 300

    /// For poll(2).
    package static var milliseconds: Int32 { Int32(seconds * 1000) }
}

extension Double {
    package static var patient: Double { Patience.seconds }
}

extension Duration {
    package static var patient: Duration { .seconds(Patience.seconds) }
}

extension WaitLimit {
    package static var patient: WaitLimit { WaitLimit(timeout: .patient) }
}
