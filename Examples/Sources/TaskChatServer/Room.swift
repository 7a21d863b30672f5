/// Who is in the chat. The actor sees one of them at a time.
actor Room {
    /// What one member has to be told, in order. A member who reads too slowly misses the oldest lines, and
    /// holds up no one.
    typealias Outbox = AsyncStream<String>

    private var members: [String: Outbox.Continuation] = [:]
    private var isOpen = true

    /// Lets a member in; nil if there is one of that name, or the room is closed.
    func join(_ name: String) -> Outbox? {
        guard isOpen, members[name] == nil else { return nil }
        let (outbox, continuation) = Outbox.makeStream(bufferingPolicy: .bufferingNewest(1_000))
        say("*** \(name) joined")
        members[name] = continuation
        continuation.yield("*** welcome, \(name); \(members.count) here")
        return outbox
    }

    func say(_ line: String, from sender: String? = nil) {
        for (name, outbox) in members where name != sender { outbox.yield(line) }
    }

    /// Lets a member go. The outbox ends when its last line has been taken.
    func leave(_ name: String) {
        guard let outbox = members.removeValue(forKey: name) else { return }
        outbox.finish()
        say("*** \(name) left")
    }

    /// Says goodbye, and lets everyone go.
    func close() {
        isOpen = false
        say("*** the server is shutting down")
        for outbox in members.values { outbox.finish() }
        members = [:]
    }
}
