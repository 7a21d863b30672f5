/// Who is in the chat. The actor sees one of them at a time.
actor Room {
    private var members: [Int: AsyncStream<String>.Continuation] = [:]
    private var lastNumber = 0
    private var isClosed = false

    /// Lets a member in. One who reads too slowly misses the oldest lines, and holds up no one.
    func join() -> (number: Int, lines: AsyncStream<String>) {
        let (lines, continuation) = AsyncStream<String>.makeStream(bufferingPolicy: .bufferingNewest(1_000))
        lastNumber += 1
        members[lastNumber] = continuation
        if isClosed { continuation.finish() }
        return (lastNumber, lines)
    }

    func say(_ line: String, from number: Int) {
        for (member, lines) in members where member != number { lines.yield("\(number): \(line)") }
    }

    /// Lets a member go: the lines end.
    func leave(_ number: Int) {
        members.removeValue(forKey: number)?.finish()
    }

    /// Says goodbye: the lines of all members end.
    func close() {
        isClosed = true
        for lines in members.values {
            lines.yield("the server shuts down")
            lines.finish()
        }
    }
}
