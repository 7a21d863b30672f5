// Rules of sending:
//  1. Datagrams are sent in order. Each datagram is sent, fails with its own error, or stays pending, and
//     the report says which. A failure does not delay later datagrams.
//  2. A send may fail with an error caused by an earlier datagram, in which case nothing is sent. A datagram
//     is therefore considered failed only if the error repeats. ECONNREFUSED is always caused by earlier
//     datagrams, so a datagram is considered failed with this error only after several attempts. EMSGSIZE
//     can also be caused by earlier datagrams if a router, or an attacker who forges its message, reports a
//     smaller path MTU. ICMP never causes EINVAL or EIO.
//  3. A run of equally sized datagrams to one destination is sent in one call if the kernel can split the
//     data. If that call fails, the datagrams are sent individually. If they can be sent individually, runs
//     of that size are not tried again. EIO means that the route does not support segmentation, which
//     disables runs for this socket.
//  4. A datagram that is too large for IP fails before any part is sent.
//  5. A single datagram is sent with sendmsg(2), with its headers on the stack.
//  6. If the kernel rejects sendmmsg(2) with ENOSYS or EPERM, the datagrams of that call are sent
//     individually. EPERM may be caused by a firewall, so the next call tries sendmmsg(2) again.

internal import CLinux
internal import Glibc
package import SocketBuffers

/// The outcome of sending datagrams, which are identified by position.
package struct DatagramSendReport {
    /// The reason that the remaining datagrams were not handled, or `none` if no datagrams remain.
    package enum Rest: Hashable, Sendable {
        case none
        /// The send buffer is full. An event reports when sending can continue.
        case wouldBlock
        /// The kernel is out of memory, or the device queue is full. No event follows, so retry after
        /// `SocketDescriptor.shortageSeconds`.
        case exhausted
    }

    /// The number of leading datagrams that were sent or failed.
    package fileprivate(set) var handledCount = 0
    /// The failures among the handled datagrams, in order.
    package fileprivate(set) var failures: [(position: Int, error: SystemError)] = []
    /// Errors caused by datagrams that were sent before this call.
    package fileprivate(set) var earlierErrors: [SystemError] = []
    package fileprivate(set) var rest = Rest.none

    package init(handledCount: Int = 0, failures: [(position: Int, error: SystemError)] = [], rest: Rest = .none) {
        (self.handledCount, self.failures, self.rest) = (handledCount, failures, rest)
    }
}

package final class DatagramSender {
    private let descriptor: DatagramDescriptor
    private let buffer: PreBuffer
    /// The largest datagram size for which a run may share one send. 0 disables runs.
    @exclusivity(unchecked) package private(set) var largestSegment: Int
    /// Whether to try sendmmsg(2): `false` after ENOSYS.
    @exclusivity(unchecked) private var hasBatches = true

    /// The number of attempts to send a datagram: for ECONNREFUSED and for any other error, respectively.
    private static let attemptsAtRefusal = 8
    private static let attempts = 2

    package init(for descriptor: DatagramDescriptor, segments: Bool = true, pool: BufferPool = .shared) {
        self.descriptor = descriptor
        largestSegment = segments && descriptor.canSegment ? Int(UInt16.max) : 0
        buffer = PreBuffer(pool: pool)
    }

    /// Sends as many datagrams as the kernel accepts.
    package func send(_ datagrams: UnsafeBufferPointer<OutgoingDatagram>) -> DatagramSendReport {
        defer { buffer.reset() }
        var progress = Progress()
        progress.sendsBatches = hasBatches
        while progress.report.handledCount < datagrams.count, progress.report.rest == .none {
            let rest = datagrams[progress.report.handledCount...]
            if rest.count == 1 || !progress.sendsBatches, let first = rest.first {
                send(first, &progress)
            } else if let error = rest.first?.sizeError {
                progress.fail(with: error)
            } else {
                sendBatch(of: rest, &progress)
            }
        }
        return progress.report
    }

    /// Sends one datagram if the kernel accepts it.
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
        // A block from the pool always has enough room.
        guard let room = buffer.writableBytes(minimum: DatagramBatch.size).baseAddress else {
            return progress.report.rest = .exhausted
        }
        let batch = batch(of: datagrams, in: room, plainCount: progress.plainCount)
        let sent = batch.send(through: descriptor)
        if sent > 0 {
            return noteSuccess(&progress, batch.datagramCount(inFirst: sent))
        }
        let error = SystemError("sendmmsg")
        if error.errno == ENOSYS { hasBatches = false }
        if error.errno == ENOSYS || error.errno == EPERM {
            progress.sendsBatches = false
        } else {
            noteFailure(
                &progress, error, run: batch.datagramCount(inFirst: 1), of: batch.firstSize,
                datagrams.first?.destination)
        }
    }

    /// - Parameter plainCount: How many of the first datagrams must not be combined into runs.
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
        // The datagram could be sent individually, so sending it in a run caused the error.
        if let suspect = progress.suspect { largestSegment = suspect.errno == EIO ? 0 : min(largestSegment, suspect.size - 1) }
        progress.succeed(count)
    }

    /// - Parameters:
    ///   - run: The number of datagrams in the failed message.
    ///   - size: The size of the first datagram in that message.
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

    /// Handles an error that was caused by the first message itself.
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

private struct Progress {
    var report = DatagramSendReport()
    /// The number of failed attempts to send the current datagram. `errors` contains their errors.
    private(set) var attempts = 0
    private var errors: [SystemError] = []
    /// The datagram size and the error of a failed run, which is now being sent as individual datagrams.
    private(set) var suspect: (size: Int, errno: CInt)?
    /// How many of the next datagrams must not be combined into runs.
    private(set) var plainCount = 0
    var sendsBatches = true

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

    /// Records an error caused by the current datagram itself.
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
