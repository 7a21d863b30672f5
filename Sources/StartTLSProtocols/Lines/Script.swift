/// A step of a dialogue in lines that this module does not know.
public enum StartTLSScriptStep: Sendable, Hashable {
    /// Sends a line. CR LF is appended.
    case send(String)
    /// Reads one line, which must have this prefix.
    case expect(String)
    /// Reads lines up to the first with this prefix. Other lines are ignored.
    case skip(to: String)
}

/// A dialogue from a script. TLS starts after its last step.
struct Script: Conversation {
    let isClient: Bool
    private var steps: ArraySlice<StartTLSScriptStep>

    init(_ steps: [StartTLSScriptStep], isClient: Bool) {
        self.steps = steps[...]
        self.isClient = isClient
    }

    var name: String { "the script" }

    mutating func start() throws(StartTLSError) -> ConversationAction {
        for case .send(let line) in steps { try check(line, "a line of the script") }
        return proceed()
    }

    mutating func receive(_ input: inout MessageInput) throws(StartTLSError) -> ConversationAction? {
        guard let line = input.line() else { return nil }
        switch steps.first {
        case .expect(let text):
            guard line.hasPrefix(text) else {
                throw error(.unexpectedMessage, "a line with the prefix \"\(text)\" was expected", line: line)
            }
        case .skip(let text): guard line.hasPrefix(text) else { return .continue }
        case .send, nil: break
        }
        steps.removeFirst()
        return proceed()
    }

    /// Performs the steps up to the next read.
    private mutating func proceed() -> ConversationAction {
        var output: [UInt8] = []
        while case .send(let line) = steps.first {
            output += [UInt8](line: line)
            steps.removeFirst()
        }
        return steps.isEmpty ? .startTLS(output) : .send(output)
    }
}
