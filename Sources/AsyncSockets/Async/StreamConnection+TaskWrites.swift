internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore

// Writes of tasks, and those that are lost.
extension StreamConnection {
    /// After a write that is done, too: lets the others of the loop go first when its time is used up.
    nonisolated(nonsending) func finish(_ write: DirectWrite) async throws {
        if case .waits(let waiter) = write { try await waiter.value(from: self) }
        if JobBudget.isUsedUp(by: self) { await JobBudget.renew() }
    }

    /// What has to wait is copied.
    func beginWrite(copying bytes: UnsafeRawBufferPointer, _ limit: OperationLimit) -> DirectWrite {
        beginWrite(bytes, limit) { Data(bytes.dropFirst($0)) }
    }

    /// Gives up the writes that wait, and remembers that.
    func dropWrites() {
        var (isOneLost, isAnswered) = (false, false)
        while let completion = writes.drop() {
            isOneLost = true
            if case .answered = completion { isAnswered = true }
            refuse(completion)
        }
        guard isOneLost else { return }
        let lost = LostWrites(error: lostWritesError, isAnswered: isAnswered)
        record.withLock { $0.snapshot.lostWrites = lost }
    }

    private var lostWritesError: AsyncSocketError {
        if case .closed(let error?) = phase { return error }
        return AsyncSocketError(
            .closed, blame: .caller, operation: "write",
            message: "the connection was closed before all that was written had been sent")
    }
}
