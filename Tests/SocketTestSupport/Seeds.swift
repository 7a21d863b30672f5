internal import Foundation

/// The seeds of tests with random inputs. The environment replays a run: a failing test prints the variable
/// and the seed to set.
package enum Seeds {
    private static let environment = ProcessInfo.processInfo.environment

    /// One seed for the whole run, unless the environment names another one.
    private static let ofThisRun = UInt64.random(in: 0..<1 << 40)

    /// Returns the first seed of a test.
    package static func first(_ variable: String) -> UInt64 { environment[variable].flatMap { UInt64($0) } ?? ofThisRun }

    /// Returns how many seeds a test uses.
    package static func count(_ variable: String, _ standard: UInt64) -> UInt64 {
        environment[variable].flatMap { UInt64($0) } ?? standard
    }
}
