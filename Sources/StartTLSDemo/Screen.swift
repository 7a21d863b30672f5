internal import Dispatch
internal import Foundation
internal import SocketBuffers

/// Writes the steps of the demonstration, each with the time since its scene began.
final class Screen: Sendable {
    private let start = Locked(DispatchTime.now())

    func title(_ text: String) {
        start.withLock { $0 = .now() }
        show("\n\u{1B}[1m\(text)\u{1B}[0m")
    }

    func step(_ who: String, _ text: String) {
        let elapsed = start.withLock { Double(DispatchTime.now().uptimeNanoseconds - $0.uptimeNanoseconds) / 1_000_000 }
        let name = who.padding(toLength: 8, withPad: " ", startingAt: 0)
        show(String(format: "%9.2f ms  ", elapsed) + name + "  " + text)
    }

    func success(_ text: String) { show("              \u{1B}[32m✓\u{1B}[0m \(text)") }
    func failure(_ text: String) { show("              \u{1B}[31m✗\u{1B}[0m \(text)") }

    /// Unbuffered, so that a step is seen when it happens, also in a pipe.
    private func show(_ line: String) {
        FileHandle.standardOutput.write(Data("\(line)\n".utf8))
    }

    /// One sentence of what a scene is about.
    func note(_ text: String) { show("              \(text)") }
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
