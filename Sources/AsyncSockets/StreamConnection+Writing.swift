internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The half of a connection that sends. A class for the same reason as `ReadHalf`.
final class WriteHalf {
    var queue = WriteQueue()
    var timer = OperationTimer()
    /// The kernel takes bytes, or has not yet said that it does not (`kSocketCanAcceptBytes`).
    var canAcceptBytes = false
    /// Why no byte can be sent any more.
    var ending: AsyncSocketError?
    /// Small writes are put together here; empty between turns.
    let scratch = PreBuffer()

    var canSend: Bool { canAcceptBytes && ending == nil }
}

/// Bytes going down: writes, engine, kernel.
extension StreamConnection {
    /// Small plaintext writes are put together up to this many bytes.
    private static let gatherLimit = 64 * 1024
    /// One TLS record.
    private static let recordLimit = 16 * 1024
    /// Ciphertext is sent when this much has gathered.
    private static let ciphertextGoal = 64 * 1024

    func enqueue(_ packet: WritePacket) {
        guard closeIntent == nil, !packet.data.isEmpty else { return }
        writes.queue.append(packet)
        pump()
    }

    func pumpWrites(to descriptor: SocketDescriptor) {
        for _ in 0..<Self.roundsPerTurn {
            guard writes.canSend else { return }
            let answer = writes.queue.withNextBytes(limit: Self.gatherLimit, gatheringIn: writes.scratch) { descriptor.send($0) }
            guard let answer else { return }
            if let count = noteSent(answer) {
                writes.queue.handOn(count)
                completeWrites()
            }
        }
        if writes.canSend { askForTurn() }
    }

    func pumpWrites(through engine: TLSEngine, to descriptor: SocketDescriptor) {
        for _ in 0..<Self.roundsPerTurn {
            sendCiphertext(engine, descriptor)
            guard writes.canSend, engine.output.isEmpty else { return }
            completeWrites()
            guard encryptSome(with: engine) else { return }
        }
        askForTurn()
    }

    /// Encrypts queued writes up to `ciphertextGoal`; false when there were none.
    private func encryptSome(with engine: TLSEngine) -> Bool {
        while engine.output.count < Self.ciphertextGoal {
            let answer = writes.queue.withNextBytes(limit: Self.recordLimit, gatheringIn: writes.scratch) { engine.write($0) }
            switch answer {
            case .accepted(let count): writes.queue.handOn(count)
            case nil, .incomplete: return !engine.output.isEmpty
            case .failed(let error):
                writes.ending = AsyncSocketError(error, operation: "write")
                return false
            }
        }
        return true
    }

    /// Sends what the engine has produced. Called after every call to the engine, failed ones too: an alert may be in it.
    func sendCiphertext(_ engine: TLSEngine, _ descriptor: SocketDescriptor) {
        while writes.canSend, !engine.output.isEmpty {
            if let count = noteSent(descriptor.send(engine.output.readableBytes)) { engine.output.consume(count) }
        }
    }

    /// The number of bytes that the kernel took, if it took any; otherwise notes why it did not.
    func noteSent(_ answer: SocketDescriptor.SendAnswer) -> Int? {
        switch answer {
        case .bytes(let count): return count
        case .wouldBlock: writes.canAcceptBytes = false
        case .failed(let error): writes.ending = AsyncSocketError(error, operation: "write")
        }
        return nil
    }

    /// Nothing that was handed on waits here any more: those packets are complete.
    private func completeWrites() {
        writes.queue.removeHandedOn { packet in
            writes.timer.advance()
            report(.didWrite(tag: packet.tag))
        }
        if let (count, tag) = writes.queue.takeProgress() { report(.didWritePartial(count, tag: tag)) }
    }
}
