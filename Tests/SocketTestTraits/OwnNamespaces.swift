import Foundation
package import Testing

extension Trait where Self == ConditionTrait {
    /// Skips a test where this process cannot create namespaces, as in most containers.
    package static var ownNamespaces: Self {
        .enabled(if: canCreateNamespaces, "this system does not allow network and mount namespaces")
    }

    private static var canCreateNamespaces: Bool {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/unshare")
        process.arguments = ["--map-root-user", "--net", "--mount", "true"]
        process.standardError = FileHandle.nullDevice
        do { try process.run() } catch { return false }
        process.waitUntilExit()
        return process.terminationStatus == 0
    }
}
