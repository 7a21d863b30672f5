// Rules of receiving:
//  1. Each recvmmsg(2) call fills one block of a pool: first the headers, then a slot for each datagram.
//     The block returns to the pool when the last datagram of the batch has been taken. With UDP GRO, each
//     slot must have room for the largest coalesced buffer. The kernel touches only the pages that it
//     fills.
//  2. Every datagram is delivered, including empty ones. With UDP GRO, one slot may contain several
//     datagrams.
//  3. If the kernel returns fewer datagrams than requested, it has no more. An event reports the next one.
//  4. An error caused by an earlier datagram (ECONNREFUSED, EHOSTUNREACH) is returned as a result, and the
//     next call receives again. The kernel reports such an error once, so the retries are bounded.
//  5. Other errors are caused by this machine: a security module, a system call filter or an old kernel. A
//     router can cause EACCES too (RFC 4443, section 3.1), but the kernel returns that error once. So
//     `denialLimit` errors in a row count as one failure for `FailingCall`.
//  6. Each call has room for about twice as many datagrams as the previous call returned, because each
//     header takes time to prepare.

internal import CLinux
internal import Glibc
internal import SocketBuffers

package struct ReceivedDatagram {
    /// Valid until the next call on the receiver.
    package let bytes: UnsafeRawBufferPointer
    package let sender: InternetAddress
    package let arrival: DatagramArrival

    package init(bytes: UnsafeRawBufferPointer, sender: InternetAddress, arrival: DatagramArrival) {
        (self.bytes, self.sender, self.arrival) = (bytes, sender, arrival)
    }
}

/// Receives datagrams in batches.
package final class DatagramReceiver {
    package enum Answer {
        /// Datagrams arrived: take them with `next()`. If `mayHaveMore` is `false`, an event reports
        /// further datagrams.
        case received(mayHaveMore: Bool)
        /// No datagram is available. An event reports the next one.
        case wouldBlock
        /// An earlier outgoing datagram caused an error. Receive again. `takeErrors(atMost:)` identifies
        /// the peer.
        case refused(SystemError)
        /// The kernel is out of memory. No event follows, so retry after `SocketDescriptor.shortageSeconds`.
        case exhausted
        /// Receiving failed. No event follows, so retry after `pause` seconds.
        ///
        /// - Parameter isFirst: Whether the previous call succeeded or failed with a different error.
        case denied(SystemError, pause: Double, isFirst: Bool)
        /// The descriptor cannot receive datagrams, or receiving failed too often.
        case failed(SystemError)
    }

    enum Failure: Hashable {
        case wouldBlock, exhausted
        /// An error caused by a datagram sent earlier (`icmp_err_convert` and `tab_unreach` in Linux).
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

    /// The largest payload: a UDP datagram has at most 65,535 bytes including its header (RFC 768; RFC
    /// 8200, section 3).
    package static let largestSize = 65_535 - 8

    /// The largest payload that is kept. Further bytes are lost (`DatagramArrival.isTruncated`).
    package let maximumSize: Int
    /// The maximum number of messages per call. With UDP GRO, a message may contain several datagrams.
    package let batchLimit: Int
    /// The port to report in `DatagramArrival.localAddress`.
    @exclusivity(unchecked) package var localPort: UInt16 = 0
    /// How many datagrams the kernel had dropped when the most recently taken datagram arrived, because the
    /// receive buffer was full or a checksum was wrong.
    package var droppedCount: Int { drops.total }

    private let pool: BufferPool
    @exclusivity(unchecked) private var block: UnsafeMutableRawPointer?
    /// The distance between the starts of two slots in bytes.
    private let stride: Int
    @exclusivity(unchecked) private var messages: UnsafeMutablePointer<CLinux_message>?
    @exclusivity(unchecked) private var count = 0
    @exclusivity(unchecked) private var index = 0
    /// The position of the next datagram within the current message.
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
    /// Room for packet information for both IP versions, two traffic classes, a timestamp, the drop count
    /// and the segment size.
    private static let controlSize = [12, 20, 4, 4, 16, 4, 4].reduce(0) { $0 + ControlMessageWriter.space(for: $1) }
    private static let headerSize =
        MemoryLayout<CLinux_message>.stride + MemoryLayout<iovec>.stride + nameSize + controlSize

    private static let mostPieces = 32
    /// With a stride of exactly 64 KiB, all slots would start in the same processor cache sets.
    private static let pieceStride = largestSize / 64 * 64 + 64 * 5
    private static let pieces = BufferPool(spareLimit: 2, size: mostPieces * (headerSize + pieceStride))

    /// - Parameters:
    ///   - maximumSize: From 1 to `largestSize`; other values are clamped. A batch contains one datagram at
    ///     the largest size, or about 27 datagrams at 2,048 bytes.
    ///   - coalesces: Whether UDP GRO is enabled on the socket. Each slot then has room for the largest
    ///     coalesced buffer, regardless of `maximumSize`, and a batch has up to 32 slots.
    package init(maximumSize: Int, coalesces: Bool = false) {
        self.maximumSize = coalesces ? Self.largestSize : maximumSize.clamped(to: 1...Self.largestSize)
        pool = coalesces ? Self.pieces : .shared
        stride = coalesces ? Self.pieceStride : self.maximumSize
        batchLimit =
            coalesces ? Self.mostPieces : min(Self.most, BufferPool.blockSize / (Self.headerSize + self.maximumSize))
    }

    deinit {
        release()
    }

    /// Whether all datagrams of the batch have been taken.
    package var isEmpty: Bool { index == count }

    /// Receives the next batch, unless the previous one still contains datagrams.
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

    /// Returns the next datagram of the batch, or `nil` after the last. Invalidates the previous datagram.
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
            // The kernel always reports the sender of a UDP datagram.
            if let sender { return ReceivedDatagram(bytes: segment.bytes, sender: sender, arrival: arrival) }
        }
        release()
        return nil
    }

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

    /// Returns a block with prepared headers for `count` messages.
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
