internal import Glibc

/// Colors for a terminal. On anything else, all functions return the text unchanged.
struct TerminalStyle: Sendable, Equatable {
    let isColored: Bool

    static let plain = TerminalStyle(isColored: false)

    init(isColored: Bool) {
        self.isColored = isColored
    }

    /// Uses colors on a terminal, unless NO_COLOR is set (https://no-color.org) or TERM is "dumb".
    init(_ choice: ColorChoice, descriptor: Int32) {
        switch choice {
        case .always: isColored = true
        case .never: isColored = false
        case .auto:
            let hasColors = Environment.value("NO_COLOR").map(\.isEmpty) ?? true
            isColored = hasColors && Environment.value("TERM") != "dumb" && isatty(descriptor) == 1
        }
    }

    func red(_ text: PrintableText) -> PrintableText { wrapped(text, "31;1") }
    func green(_ text: PrintableText) -> PrintableText { wrapped(text, "32") }
    func yellow(_ text: PrintableText) -> PrintableText { wrapped(text, "33") }
    func bold(_ text: PrintableText) -> PrintableText { wrapped(text, "1") }
    func dim(_ text: PrintableText) -> PrintableText { wrapped(text, "2") }

    private func wrapped(_ text: PrintableText, _ code: PrintableText) -> PrintableText {
        isColored ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text
    }
}

enum Environment {
    static func value(_ name: String) -> String? {
        getenv(name).map { String(cString: $0) }
    }
}
