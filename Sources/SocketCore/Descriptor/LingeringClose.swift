// Rules of a lingering close:
//  1. It sends our remaining bytes (`output`: the rest of a record, an alert, a close_notify, the replies of
//     a failed dialogue) and then the FIN.
//  2. It discards data that the peer still sends. An immediate close would cause a reset, and a reset makes
//     the peer drop data that it has not read yet.
//  3. It finishes when both sides are done, when the connection breaks, after the grace period (one second,
//     or five seconds with data to send), or after `byteLimit` bytes were received.
//  4. When the kernel is short of buffers, for which no event follows, it retries after `shortageSeconds`.

internal import SocketBuffers

/// Closes a connection slowly, so that a reset does not overtake our last bytes.
package final class LingeringClose: EventHandler, @unchecked Sendable {
    // Unchecked: after `begin`, this object is used only on the loop.
    private let descriptor: SocketDescriptor
    private let loop: SocketEventLoop
    private let output = PreBuffer()
    private var registration: LoopRegistration?
    private var bytesLeft = LingeringClose.byteLimit
    private var hasSentAll = false
    private var peerIsDone = false
    /// The end of the grace period.
    private var end = Deadline.never
    /// When to send again after a shortage.
    private var retry = Deadline.never

    private static let byteLimit = 1024 * 1024
    private static let closeTimeout = (discarding: 1.0, sending: 5.0)

    /// Takes over a descriptor that was removed from the loop, and the bytes that remain to be sent.
    package static func begin(
        with descriptor: SocketDescriptor, sending output: UnsafeRawBufferPointer?, on loop: SocketEventLoop
    ) {
        let closing = LingeringClose(descriptor, loop)
        if let output { closing.output.append(output) }
        closing.sendRest()
        // Often the peer has already sent its FIN.
        if closing.hasSentAll { closing.discardSome() }
        guard !closing.peerIsDone else { return descriptor.close() }
        let registration = loop.register(closing)
        closing.registration = registration
        closing.end = Deadline(after: closing.hasSentAll ? closeTimeout.discarding : closeTimeout.sending) ?? .never
        closing.setDeadline(of: registration)
        do throws(SystemError) {
            try loop.watch(descriptor, for: registration)
        } catch {
            loop.deregister(registration)
        }
    }

    private init(_ descriptor: SocketDescriptor, _ loop: SocketEventLoop) {
        self.descriptor = descriptor
        self.loop = loop
    }

    package func handle(_ events: LoopEvents) {
        guard let registration else { return }
        if !hasSentAll { sendRest() }
        if !peerIsDone { discardSome() }
        let isDeadline = events.contains(.deadline)
        guard isDeadline && end.isAtMost(.now) || hasSentAll && peerIsDone else {
            if isDeadline || !retry.isNever { setDeadline(of: registration) }
            return
        }
        self.registration = nil
        loop.unwatch(descriptor)
        loop.deregister(registration)
        descriptor.close()
    }

    private func setDeadline(of registration: LoopRegistration) {
        loop.setDeadline(end.earlier(retry), of: registration)
    }

    private func sendRest() {
        retry = .never
        while !output.isEmpty {
            switch descriptor.send(output.readableBytes) {
            case .bytes(let count): output.consume(count)
            case .wouldBlock: return
            case .exhausted:
                retry = Deadline(after: SocketDescriptor.shortageSeconds) ?? .never
                return
            case .failed: output.reset()
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
