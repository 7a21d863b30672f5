internal import Dispatch
internal import Foundation
internal import Synchronization

/// Prints the steps of the demo, each with the time since the start of its scene.
final class Screen: Sendable {
    /// ECMA-48 codes.
    private enum Style: Int {
        case bold = 1
        case red = 31
        case green = 32
    }

    /// Whether the output is a terminal that supports colors and the user has not disabled them
    /// (no-color.org).
    private let isColoured: Bool = {
        let environment = ProcessInfo.processInfo.environment
        return isatty(STDOUT_FILENO) == 1 && environment["NO_COLOR", default: ""].isEmpty && environment["TERM"] != "dumb"
    }()
    private let start = Mutex(DispatchTime.now())

    func title(_ text: String) {
        start.withLock { $0 = .now() }
        show("\n" + styled(text, .bold))
    }

    func step(_ who: String, _ text: String) {
        let elapsed = start.withLock { Double(DispatchTime.now().uptimeNanoseconds - $0.uptimeNanoseconds) / 1_000_000 }
        let name = who.padding(toLength: 8, withPad: " ", startingAt: 0)
        show(String(format: "%9.2f ms  ", elapsed) + name + "  " + text)
    }

    func success(_ text: String) { show("              \(styled("✓", .green)) \(text)") }
    func failure(_ text: String) { show("              \(styled("✗", .red)) \(text)") }

    /// Unbuffered, so that each step appears when it happens, even in a pipe.
    private func show(_ line: String) {
        FileHandle.standardOutput.write(Data("\(line)\n".utf8))
    }

    /// Prints a remark about the scene.
    func note(_ text: String) { show("              \(text)") }

    private func styled(_ text: String, _ style: Style) -> String {
        isColoured ? "\u{1B}[\(style.rawValue)m\(text)\u{1B}[0m" : text
    }
}

/// The results of a scene's checks.
struct Verdict {
    var checks = 0
    var failures: [String] = []

    mutating func check(_ holds: Bool, _ claim: String, on screen: Screen) {
        checks += 1
        if holds {
            screen.success(claim)
        } else {
            failures.append(claim)
            screen.failure(claim)
        }
    }
}
