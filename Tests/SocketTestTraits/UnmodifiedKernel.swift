import Foundation
package import Testing

extension Trait where Self == ConditionTrait {
    /// Skips a test while Scripts/checks/faults makes system calls misbehave. For tests in which one system
    /// call must move all bytes, or must not fail.
    package static var unmodifiedKernel: Self {
        .enabled(if: ProcessInfo.processInfo.environment["FAULTS"] == nil, "FAULTS is set")
    }
}
