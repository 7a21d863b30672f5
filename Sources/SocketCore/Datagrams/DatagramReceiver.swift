// Rules of receiving:
//  1. One call of recvmmsg(2) fills one block of a pool: first the headers, then a slot for each datagram.
//     The block returns to the pool when the last datagram of the batch has been taken. With UDP GRO each
//     slot must hold the largest piece; the kernel touches only the pages of a slot that it fills.
//  2. Every datagram is handed out, also one of zero bytes. With UDP GRO one slot holds several.
//  3. Fewer datagrams than were asked for mean that the kernel has no more: an event announces the next.
//  4. An error that an earlier datagram has met (ECONNREFUSED, EHOSTUNREACH) is an answer, and the next call
//     receives. The kernel has forgotten the error then, so this ends.
//  5. Other errors are caused by this machine: a security module, a system call filter or an old kernel. A
//     router can cause EACCES too (RFC 4443, section 3.1), but the kernel returns that error once. So
//     `denialLimit` errors in a row count as one failure for `FailingCall`.
//  6. Each call has room for about twice as many datagrams as the previous call returned, because each header
//     takes time to prepare.

internal import CLinux
internal import Glibc
internal import SocketBuffers

/// A datagram in the block of its receiver.
package struct ReceivedDatagram {
    /// Valid until the next call of the receiver.
    package let bytes: UnsafeRawBufferPointer
    package let sender: InternetAddress
    package let arrival: DatagramArrival

    package init(bytes: UnsafeRawBufferPointer, sender: InternetAddress, arrival: DatagramArrival) {
        (self.bytes, self.sender, self.arrival) = (bytes, sender, arrival)
    }
}

/// Receives datagrams in batches.
package final class DatagramReceiver {
    /// The kernel's answer to `receive`.
    package enum Answer {
        /// Take them with `next()`. An event announces more, unless there may be more already.
        case received(mayHaveMore: Bool)
        /// Nothing has arrived: an event says when to go on.
        case wouldBlock
        /// An error that a datagram met that was sent earlier: receive again. `takeErrors(atMost:)` names the
        /// peer.
        case refused(SystemError)
        /// The kernel has no memory. No event follows: try again after `SocketDescriptor.shortageSeconds`.
        case exhausted
        /// The kernel refused to receive. No event follows, so retry after `pause` seconds.
        ///
        /// - Parameter isFirst: Whether the previous call succeeded or failed with a different error.
        case denied(SystemError, pause: Double, isFirst: Bool)
        /// The descriptor does not receive datagrams, or the kernel has refused too often.
        case failed(SystemError)
    }

    /// The meaning of an error of recvmmsg(2).
    enum Failure: Hashable {
        case wouldBlock, exhausted
        /// An error of a datagram that was sent earlier (`icmp_err_convert` and `tab_unreach` of Linux).
        case ofEarlierDatagram
        case certain
        case denied

        init(_ errno: CInt) {
            self =
                switch errno {
                case EAGAIN: .wouldBlock
                case ENOBUFS, ENOMEM: .exhausted
                case ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ENOPROTOOPT, EMSGSIZE, EOPNOTSUPP, EHOSTDOWN, ENONET, EPROTO,
                    ENETDOWN:
                    .ofEarlierDatagram
                case _ where SystemError("recvmmsg", errno: errno).isCertainToRepeat: .certain
                default: .denied
                }
        }
    }

    /// The largest payload: a UDP datagram has 65,535 bytes with its header (RFC 768; RFC 8200, section 3).
    package static let largestSize = 65_535 - 8

    /// The bytes of a datagram that are kept; more of them are lost (`DatagramArrival.isTruncated`).
    package let maximumSize: Int
    /// The most datagrams, or pieces with several, in one call.
    package let batchLimit: Int
    /// The port of `DatagramArrival.localAddress`.
    @exclusivity(unchecked) package var localPort: UInt16 = 0
    /// How many datagrams the kernel had dropped when the last one arrived that was taken, for lack of room
    /// or a wrong checksum.
    package var droppedCount: Int { drops.total }

    private let pool: BufferPool
    @exclusivity(unchecked) private var block: UnsafeMutableRawPointer?
    /// The bytes from the beginning of a slot to the next.
    private let stride: Int
    @exclusivity(unchecked) private var messages: UnsafeMutablePointer<CLinux_message>?
    @exclusivity(unchecked) private var count = 0
    @exclusivity(unchecked) private var index = 0
    /// How far the current message has been handed out.
    @exclusivity(unchecked) private var offset = 0
    @exclusivity(unchecked) private var facts = ArrivalFacts()
    @exclusivity(unchecked) private var drops = WrappingCount()
    @exclusivity(unchecked) private var hope = 8
    @exclusivity(unchecked) private var failing = FailingCall()

    /// How many errors in a row count as one failure (rule 5).
    private static let denialLimit = 32
    private static let fewest = 4
    private static let most = 64
    private static let nameSize = 32
    /// Room for the packet information of both versions of IP, two traffic classes, a time stamp, the drop
    /// count and the segment size.
    private static let controlSize = [12, 20, 4, 4, 16, 4, 4].reduce(0) { $0 + ControlMessageWriter.space(for: $1) }
    private static let headerSize =
        MemoryLayout<CLinux_message>.stride + MemoryLayout<iovec>.stride + nameSize + controlSize

    /// How many pieces one call receives with UDP GRO.
    private static let mostPieces = 32
    /// Slots of 64 KiB exactly would all begin in the same sets of the processor's caches.
    private static let pieceStride = largestSize / 64 * 64 + 64 * 5
    private static let pieces = BufferPool(spareLimit: 2, size: mostPieces * (headerSize + pieceStride))

    /// - Parameters:
    ///   - maximumSize: 1 to `largestSize`; another becomes the nearest. With the largest, a batch is one
    ///     datagram; with 2,048, it is some twenty-seven.
    ///   - coalesces: The socket has UDP GRO: a slot has room for the largest piece, whatever `maximumSize`
    ///     is, and a batch is up to thirty-two of them.
    package init(maximumSize: Int, coalesces: Bool = false) {
        self.maximumSize = coalesces ? Self.largestSize : max(1, min(maximumSize, Self.largestSize))
        pool = coalesces ? Self.pieces : .shared
        stride = coalesces ? Self.pieceStride : self.maximumSize
        batchLimit =
            coalesces ? Self.mostPieces : min(Self.most, BufferPool.blockSize / (Self.headerSize + self.maximumSize))
    }

    deinit {
        release()
    }

    /// True when all datagrams of the batch have been taken.
    package var isEmpty: Bool { index == count }

    /// Receives the next batch, unless there are datagrams of the last one.
    package func receive(from descriptor: DatagramDescriptor, atMost limit: Int = .max) -> Answer {
        guard isEmpty else { return .received(mayHaveMore: true) }
        let asked = max(1, min(limit, batchLimit, hope))
        let messages = prepare(asked)
        let flags = CInt(MSG_DONTWAIT | MSG_TRUNC)
        for _ in 0..<Self.denialLimit {
            let received = retryingOnInterrupt {
                CLinux_recvmmsg(descriptor.socket.rawValue, messages, UInt32(asked), flags, nil)
            }
            if received > 0 {
                failing.succeed()
                (self.messages, count, index, offset) = (messages, Int(received), 0, 0)
                hope = max(Self.fewest, min(Self.most, count * 2))
                return .received(mayHaveMore: count == asked)
            }
            let failure = Failure(errno)
            if failure != .denied { return answer(to: failure, errno) }
        }
        return answer(to: .denied, errno)
    }

    @inline(never)
    private func answer(to failure: Failure, _ errno: CInt) -> Answer {
        release()
        let error = SystemError("recvmmsg", errno: errno)
        switch failure {
        case .wouldBlock:
            failing.succeed()
            return .wouldBlock
        case .exhausted: return .exhausted
        case .ofEarlierDatagram: return .refused(error)
        case .certain: return .failed(error)
        case .denied:
            switch failing.note(error) {
            case .pause(let seconds, let isFirst): return .denied(error, pause: seconds, isFirst: isFirst)
            case .end(let error): return .failed(error)
            }
        }
    }

    /// The next datagram of the batch; nil after the last. It invalidates the one before.
    package func next() -> ReceivedDatagram? {
        while let messages, index < count {
            let message = messages[index]
            if offset == 0 { readFacts(of: message.header) }
            let segment = segment(of: message)
            let sender = InternetAddress(
                UnsafeRawBufferPointer(start: message.header.msg_name, count: Int(message.header.msg_namelen)))
            let arrival = DatagramArrival(
                facts, fullSize: segment.fullSize, isTruncated: segment.bytes.count < segment.fullSize)
            step(over: segment.fullSize, of: Int(message.length))
            // UDP has the sender always.
            if let sender { return ReceivedDatagram(bytes: segment.bytes, sender: sender, arrival: arrival) }
        }
        release()
        return nil
    }

    /// Drops what is left of the batch.
    package func discard() {
        release()
    }

    // MARK: - The current message

    private func readFacts(of header: msghdr) {
        facts = ArrivalFacts(
            UnsafeRawBufferPointer(start: header.msg_control, count: Int(header.msg_controllen)), port: localPort)
        if let dropped = facts.droppedCount { drops.note(dropped) }
    }

    private func segment(of message: CLinux_message) -> (bytes: UnsafeRawBufferPointer, fullSize: Int) {
        let full = Int(message.length)
        let held = UnsafeRawBufferPointer(
            start: message.header.msg_iov.pointee.iov_base, count: min(full, maximumSize))
        let size = min(facts.segmentSize.flatMap { $0 > 0 ? $0 : nil } ?? full, full - offset)
        let bytes = held[min(offset, held.count)..<min(offset + size, held.count)]
        return (UnsafeRawBufferPointer(rebasing: bytes), size)
    }

    private func step(over size: Int, of length: Int) {
        offset += size
        guard offset >= length else { return }
        offset = 0
        index += 1
    }

    private func release() {
        (messages, count, index, offset) = (nil, 0, 0, 0)
        if let block = block.take() { pool.give(block) }
    }

    // MARK: - The block

    /// A block with the headers of `count` messages.
    private func prepare(_ count: Int) -> UnsafeMutablePointer<CLinux_message> {
        let base = block ?? pool.take()
        block = base
        let messages = base.bindMemory(to: CLinux_message.self, capacity: count)
        let parts = UnsafeMutableRawPointer(messages + count).bindMemory(to: iovec.self, capacity: count)
        let controls = UnsafeMutableRawPointer(parts + count)
        let names = controls + count * Self.controlSize
        let slots = names + count * Self.nameSize
        for index in 0..<count {
            (parts + index).initialize(to: iovec(iov_base: slots + index * stride, iov_len: maximumSize))
            var header = msghdr()
            header.msg_name = names + index * Self.nameSize
            header.msg_namelen = socklen_t(Self.nameSize)
            header.msg_iov = parts + index
            header.msg_iovlen = 1
            header.msg_control = controls + index * Self.controlSize
            header.msg_controllen = Self.controlSize
            (messages + index).initialize(to: CLinux_message(header: header, length: 0))
        }
        return messages
    }
}
