/// The members of the chat. The actor handles one call at a time.
actor Room {
    /// The lines to send to a member, in order. If a member reads too slowly, the oldest lines are dropped,
    /// so that the other members are not delayed.
    typealias Outbox = AsyncStream<String>

    private var members: [String: Outbox.Continuation] = [:]
    private var isOpen = true

    /// Adds a member. Returns nil if the name is taken or the room is closed.
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

    /// Removes a member. Lines that are already in the outbox are still delivered.
    func leave(_ name: String) {
        guard let outbox = members.removeValue(forKey: name) else { return }
        outbox.finish()
        say("*** \(name) left")
    }

    /// Sends a goodbye to all members and removes them.
    func close() {
        isOpen = false
        say("*** the server is shutting down")
        for outbox in members.values { outbox.finish() }
        members = [:]
    }
}
