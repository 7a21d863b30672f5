/// The members of the chat. The actor handles one call at a time.
actor Room {
    private var members: [Int: AsyncStream<String>.Continuation] = [:]
    private var lastNumber = 0
    private var isClosed = false

    /// Adds a member. If a member reads too slowly, the oldest lines are dropped, so that the others are not
    /// delayed.
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

    /// Removes a member and finishes its stream.
    func leave(_ number: Int) {
        members.removeValue(forKey: number)?.finish()
    }

    /// Sends a goodbye to all members and finishes their streams.
    func close() {
        isClosed = true
        for lines in members.values {
            lines.yield("the server is shutting down")
            lines.finish()
        }
    }
}
