// Rules of a lingering close:
//  1. What the engine had still to say (`output`: the rest of a record, an alert, a close_notify) is sent
//     before the FIN.
//  2. What the peer still sends is discarded. Closing at once would answer it with a reset, and a reset makes
//     the peer drop what it has not read yet.
//  3. It is over when both sides are done, when the connection breaks, or after a second (five when there was
//     something to send) or `byteLimit` bytes.

internal import SocketBuffers

/// The last moments of a connection that its owner is done with, and whose last bytes shall still arrive.
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
    private static let seconds = (discarding: 1.0, sending: 5.0)

    /// Takes over a descriptor that has left the loop, and what is still to be sent on it.
    package static func begin(with descriptor: SocketDescriptor, sending output: UnsafeRawBufferPointer?, on loop: EventLoop) {
        let closing = LingeringClose(descriptor, loop)
        if let output { closing.output.append(output) }
        let registration = loop.register(closing)
        closing.registration = registration
        closing.sendRest()
        loop.setDeadline(Deadline(after: closing.hasSentAll ? seconds.discarding : seconds.sending), of: registration)
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
            // There is no event to wait for, and the rest is not worth more.
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
