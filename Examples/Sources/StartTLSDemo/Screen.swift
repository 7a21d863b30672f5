internal import Dispatch
internal import Foundation
internal import Synchronization

/// Writes the steps of the demonstration, each with the time since its scene began.
final class Screen: Sendable {
    /// The codes of ECMA-48 that it uses.
    private enum Style: Int {
        case bold = 1
        case red = 31
        case green = 32
    }

    /// True on a terminal that can show colours, unless its user wants none (no-color.org).
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

    /// Unbuffered, so that a step is seen when it happens, also in a pipe.
    private func show(_ line: String) {
        FileHandle.standardOutput.write(Data("\(line)\n".utf8))
    }

    /// One sentence of what a scene is about.
    func note(_ text: String) { show("              \(text)") }

    private func styled(_ text: String, _ style: Style) -> String {
        isColoured ? "\u{1B}[\(style.rawValue)m\(text)\u{1B}[0m" : text
    }
}

/// What a scene has proved.
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
