internal import SocketBuffers

/// The last moments of a connection that its owner is done with, and whose last bytes shall still arrive.
///
/// It sends a FIN and discards what the peer still sends, until the peer closes too or a second or `byteLimit` bytes have passed. Closing at once
/// would answer those bytes with a reset, and a reset makes the peer drop what it has not read yet.
package final class Farewell: EventHandler, @unchecked Sendable {
    // Unchecked: after `begin` only the loop touches it.
    private let descriptor: SocketDescriptor
    private let loop: EventLoop
    private var registration: LoopRegistration?
    private var bytesLeft = Farewell.byteLimit

    private static let byteLimit = 1024 * 1024
    private static let seconds = 1.0

    /// Takes the descriptor over; it has left the loop.
    package static func begin(with descriptor: SocketDescriptor, on loop: EventLoop) {
        let farewell = Farewell(descriptor, loop)
        descriptor.shutdownWriting()
        let registration = loop.register(farewell)
        farewell.registration = registration
        loop.setDeadline(Deadline(after: seconds), of: registration)
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
        if !events.contains(.deadline), discardSome(registration) { return }
        self.registration = nil
        loop.unwatch(descriptor)
        loop.deregister(registration)
        descriptor.close()
    }

    /// True when the peer may still be sending.
    private func discardSome(_ registration: LoopRegistration) -> Bool {
        let buffer = PreBuffer()
        while bytesLeft > 0 {
            switch descriptor.receive(into: buffer.writableBytes(minimum: 1)) {
            case .bytes(let count): bytesLeft -= count
            case .wouldBlock: return true
            case .endOfFile, .failed: return false
            }
        }
        return false
    }
}
