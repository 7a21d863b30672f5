/// One step of a custom line-based dialogue.
public enum StartTLSScriptStep: Sendable, Hashable {
    /// Sends a line of 1 to 500 bytes. CR LF is appended.
    case send(String)
    /// Reads one line, which must have this prefix.
    case expect(String)
    /// Skips lines until one has this prefix.
    case skip(to: String)
}

/// A dialogue from a script. TLS starts after its last step.
struct Script: ProtocolSide {
    let isClient: Bool
    private var steps: ArraySlice<StartTLSScriptStep>

    init(_ steps: [StartTLSScriptStep], isClient: Bool) {
        self.steps = steps[...]
        self.isClient = isClient
    }

    var name: String { "the script" }

    func validate() throws(StartTLSError) {
        for case .send(let line) in steps { try check(line, "a line of the script") }
    }

    mutating func start() -> DialogueAction { proceed() }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> DialogueAction? {
        guard let line = input.lineBytes() else { return nil }
        switch steps.first {
        case .expect(let text):
            guard line.starts(with: text.utf8) else {
                throw error(
                    .unexpectedMessage, "expected a line that starts with \"\(text)\"",
                    line: String(decoding: line, as: UTF8.self))
            }
        case .skip(let text): guard line.starts(with: text.utf8) else { return .continue }
        case .send, nil: break
        }
        steps.removeFirst()
        return proceed()
    }

    /// Performs the steps up to the next read.
    private mutating func proceed() -> DialogueAction {
        var output: [UInt8] = []
        while case .send(let line) = steps.first {
            output += [UInt8](line: line)
            steps.removeFirst()
        }
        return steps.isEmpty ? .startTLS(output) : .send(output)
    }
}
