package import AsyncSocketsTesting
internal import Foundation

/// The time limit for any event that a test expects, in seconds: five minutes, because a handshake can take
/// minutes on a busy machine. `TEST_PATIENCE` overrides it; Scripts/mutants sets a few seconds, because it
/// looks for hangs.
///
/// Tests write this limit as `.patient`. The limit of a whole test is three times as long
/// (`TestTimeLimit.swift`).
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
