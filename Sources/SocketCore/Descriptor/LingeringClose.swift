// Rules of a lingering close:
//  1. It sends the rest of our bytes (`output`: of a record, an alert, a close_notify), and then the FIN.
//  2. It discards what the peer still sends. Closing at once would answer that with a reset, and a reset
//     makes the peer drop what it has not read yet.
//  3. It ends when both sides are done, when the connection breaks, after its grace period (one second, or
//     five with something to send), or after `byteLimit` bytes.

internal import SocketBuffers

/// Closes a connection slowly, so that a reset does not overtake our last bytes.
package final class LingeringClose: EventHandler, @unchecked Sendable {
    // Unchecked: after `begin` only the loop touches it.
    private let descriptor: SocketDescriptor
    private let loop: EventLoop
    private let output = PreBuffer()
    private var registration: LoopRegistration?
    private var bytesLeft = LingeringClose.byteLimit
    private var hasSentAll = false
    private var peerIsDone = false

    private static let byteLimit = 1024 * 1024
    private static let gracePeriod = (discarding: 1.0, sending: 5.0)

    /// Takes over a descriptor that has left the loop, and the bytes that it still has to send.
    package static func begin(with descriptor: SocketDescriptor, sending output: UnsafeRawBufferPointer?, on loop: EventLoop) {
        let closing = LingeringClose(descriptor, loop)
        if let output { closing.output.append(output) }
        let registration = loop.register(closing)
        closing.registration = registration
        closing.sendRest()
        loop.setDeadline(Deadline(after: closing.hasSentAll ? gracePeriod.discarding : gracePeriod.sending), of: registration)
        do throws(SystemError) {
            try loop.watch(descriptor, for: registration)
        } catch {
            loop.deregister(registration)
        }
    }

    private init(_ descriptor: SocketDescriptor, _ loop: EventLoop) {
        self.descriptor = descriptor
        self.loop = loop
    }

    package func handle(_ events: LoopEvents) {
        guard let registration else { return }
        if !hasSentAll { sendRest() }
        if !peerIsDone { discardSome() }
        guard events.contains(.deadline) || (hasSentAll && peerIsDone) else { return }
        self.registration = nil
        loop.unwatch(descriptor)
        loop.deregister(registration)
        descriptor.close()
    }

    private func sendRest() {
        while !output.isEmpty {
            switch descriptor.send(output.readableBytes) {
            case .bytes(let count): output.consume(count)
            case .wouldBlock: return
            // No event follows, and the rest is not worth a timer.
            case .exhausted, .failed: output.reset()
            }
        }
        hasSentAll = true
        descriptor.shutdownWriting()
    }

    private func discardSome() {
        let buffer = PreBuffer()
        while bytesLeft > 0 {
            switch descriptor.receive(into: buffer.writableBytes(minimum: 1)) {
            case .bytes(let count): bytesLeft -= count
            case .wouldBlock: return
            case .endOfFile, .failed: bytesLeft = 0
            }
        }
        peerIsDone = true
    }
}
