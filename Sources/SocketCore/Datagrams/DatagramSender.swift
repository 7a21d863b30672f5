// Rules of sending:
//  1. Datagrams leave in order. Each is sent, or fails with an error of its own, or waits; the report says
//     which. A failure does not hold up the later ones.
//  2. The kernel answers a send with an error that an earlier datagram has met, and does not send. So a
//     datagram fails only with an error that it meets again. ECONNREFUSED comes from earlier ones always:
//     only a peer that refuses each of many attempts fails a datagram. EMSGSIZE comes from earlier ones too,
//     when a router, or one who forges its report, says that the path carries less. ICMP never has EINVAL
//     and EIO.
//  3. A run of equal size to one destination goes in one send if the kernel can cut it up. If that fails, the
//     run is sent without; if this works, sends of that size are not tried again. EIO means a route that
//     cannot do it, and ends it for this socket.
//  4. A datagram that is too large for IP fails before anything of it is sent.
//  5. One datagram alone goes by sendmsg(2), with its headers on the stack.

internal import CLinux
internal import Glibc
package import SocketBuffers

/// The fate of datagrams, which are named by their position.
package struct DatagramSendReport {
    /// Why the rest waits.
    package enum Rest: Hashable, Sendable {
        /// All are handled.
        case none
        /// The socket has no room: an event says when to go on.
        case wouldBlock
        /// The kernel has no memory, or the device's queue is full. No event follows: try again after
        /// `SocketDescriptor.shortageSeconds`.
        case exhausted
    }

    /// The first ones, which are sent or have failed.
    package fileprivate(set) var handledCount = 0
    /// Those of the first ones that have failed, in order.
    package fileprivate(set) var failures: [(position: Int, error: SystemError)] = []
    /// Errors that datagrams have met that were sent before this call.
    package fileprivate(set) var earlierErrors: [SystemError] = []
    package fileprivate(set) var rest = Rest.none

    /// - Parameter handledCount: 0 by default.
    package init(handledCount: Int = 0, failures: [(position: Int, error: SystemError)] = [], rest: Rest = .none) {
        (self.handledCount, self.failures, self.rest) = (handledCount, failures, rest)
    }
}

/// Sends datagrams in batches.
package final class DatagramSender {
    private let descriptor: DatagramDescriptor
    private let buffer: PreBuffer
    /// The size of datagrams up to which runs go into one send; 0: none.
    @exclusivity(unchecked) package private(set) var largestSegment: Int

    /// How often a datagram is tried that the kernel answers with ECONNREFUSED, and with another error.
    private static let attemptsAtRefusal = 8
    private static let attempts = 2

    /// - Parameter segments: Whether runs may go into one send.
    package init(for descriptor: DatagramDescriptor, segments: Bool = true, pool: BufferPool = .shared) {
        self.descriptor = descriptor
        largestSegment = segments && descriptor.canSegment ? Int(UInt16.max) : 0
        buffer = PreBuffer(pool: pool)
    }

    /// Sends as many as there is room for.
    package func send(_ datagrams: UnsafeBufferPointer<OutgoingDatagram>) -> DatagramSendReport {
        defer { buffer.reset() }
        var progress = Progress()
        while progress.report.handledCount < datagrams.count, progress.report.rest == .none {
            let rest = datagrams[progress.report.handledCount...]
            if rest.count == 1, let last = rest.first {
                send(last, &progress)
            } else if let error = rest.first?.sizeError {
                progress.fail(with: error)
            } else {
                sendBatch(of: rest, &progress)
            }
        }
        return progress.report
    }

    /// Sends one, if there is room for it.
    package func send(_ datagram: OutgoingDatagram) -> DatagramSendReport {
        if datagram.sizeError == nil, datagram.send(through: descriptor) { return DatagramSendReport(handledCount: 1) }
        return resend(datagram, after: SystemError("sendmsg"))
    }

    @inline(never)
    private func resend(_ datagram: OutgoingDatagram, after error: SystemError) -> DatagramSendReport {
        var progress = Progress()
        if datagram.sizeError == nil { noteFailure(&progress, error, run: 1, of: datagram.bytes.count, datagram.destination) }
        while progress.report.handledCount == 0, progress.report.rest == .none { send(datagram, &progress) }
        return progress.report
    }

    private func send(_ datagram: OutgoingDatagram, _ progress: inout Progress) {
        if let error = datagram.sizeError { return progress.fail(with: error) }
        if datagram.send(through: descriptor) {
            noteSuccess(&progress, 1)
        } else {
            noteFailure(&progress, SystemError("sendmsg"), run: 1, of: datagram.bytes.count, datagram.destination)
        }
    }

    private func sendBatch(of datagrams: UnsafeBufferPointer<OutgoingDatagram>.SubSequence, _ progress: inout Progress) {
        // A block of the pool always has this room.
        guard let room = buffer.writableBytes(minimum: DatagramBatch.size).baseAddress else {
            return progress.report.rest = .exhausted
        }
        let batch = batch(of: datagrams, in: room, plainCount: progress.plainCount)
        let sent = batch.send(through: descriptor)
        if sent > 0 {
            noteSuccess(&progress, batch.datagramCount(inFirst: sent))
        } else {
            noteFailure(
                &progress, SystemError("sendmmsg"), run: batch.datagramCount(inFirst: 1), of: batch.firstSize,
                datagrams.first?.destination)
        }
    }

    /// - Parameter plainCount: How many of the first datagrams go without runs.
    private func batch(
        of datagrams: UnsafeBufferPointer<OutgoingDatagram>.SubSequence, in room: UnsafeMutableRawPointer, plainCount: Int
    ) -> DatagramBatch {
        var batch = DatagramBatch(in: room)
        var (rest, plainCount) = (datagrams, plainCount)
        while let next = rest.first, next.sizeError == nil {
            let taken = batch.append(rest, on: descriptor.families, largestSegment: plainCount > 0 ? 0 : largestSegment)
            guard taken > 0 else { break }
            rest = rest.dropFirst(taken)
            plainCount -= taken
        }
        return batch
    }

    private func noteSuccess(_ progress: inout Progress, _ count: Int) {
        // Without a run it works, so the run was to blame.
        if let suspect = progress.suspect { largestSegment = suspect.errno == EIO ? 0 : min(largestSegment, suspect.size - 1) }
        progress.succeed(count)
    }

    /// - Parameters:
    ///   - run: How many datagrams the message had that has failed.
    ///   - size: Of the first of them.
    private func noteFailure(
        _ progress: inout Progress, _ error: SystemError, run: Int, of size: Int, _ destination: InternetAddress?
    ) {
        switch error.errno {
        case EAGAIN: progress.report.rest = .wouldBlock
        case ENOBUFS, ENOMEM: progress.report.rest = .exhausted
        case EINVAL, EIO: noteOwnFailure(&progress, error, run: run, of: size, destination)
        case EBADF, ENOTSOCK: progress.fail(with: error)
        default:
            progress.attempted(with: error)
            let limit = error.errno == ECONNREFUSED ? Self.attemptsAtRefusal : Self.attempts
            if progress.attempts >= limit { noteOwnFailure(&progress, error, run: run, of: size, destination) }
        }
    }

    /// The error belongs to the first message.
    private func noteOwnFailure(
        _ progress: inout Progress, _ error: SystemError, run: Int, of size: Int, _ destination: InternetAddress?
    ) {
        if run > 1, [EINVAL, EIO, EMSGSIZE].contains(error.errno) {
            progress.suspect(size, error.errno, run)
        } else {
            progress.fail(with: error.about(destination))
        }
    }
}

/// How far one call of `send` has come.
private struct Progress {
    var report = DatagramSendReport()
    /// Attempts at the current datagram that have failed, and the errors of them.
    private(set) var attempts = 0
    private var errors: [SystemError] = []
    /// A run that has failed, and is now sent without.
    private(set) var suspect: (size: Int, errno: CInt)?
    /// How many datagrams are sent without runs.
    private(set) var plainCount = 0

    mutating func attempted(with error: SystemError) {
        attempts += 1
        errors.append(error)
    }

    mutating func suspect(_ size: Int, _ errno: CInt, _ count: Int) {
        suspect = (size, errno)
        plainCount = count
        attempts = 0
        errors.removeAll { $0.errno == errno }
    }

    mutating func succeed(_ count: Int) {
        report.earlierErrors += errors
        handle(count)
    }

    /// The datagram has met this error itself.
    mutating func fail(with error: SystemError) {
        report.earlierErrors += errors.filter { $0.errno != error.errno }
        report.failures.append((report.handledCount, error))
        handle(1)
    }

    private mutating func handle(_ count: Int) {
        report.handledCount += count
        plainCount = max(0, plainCount - count)
        (attempts, errors, suspect) = (0, [], nil)
    }
}

extension OutgoingDatagram {
    fileprivate var sizeError: SystemError? { Self.sizeError(of: bytes.count, to: destination) }
}

extension SystemError {
    fileprivate func about(_ destination: InternetAddress?) -> SystemError {
        destination.map { about($0.socketAddress) } ?? self
    }
}
