internal import CLinux
internal import Glibc
internal import SocketBuffers

/// A datagram that is to be sent.
package struct OutgoingDatagram {
    /// Valid during the call that sends it.
    package let bytes: UnsafeRawBufferPointer
    /// Nil: the peer of a connected socket.
    package let destination: InternetAddress?
    /// Nil: the kernel chooses.
    package let source: DatagramSource?

    package init(_ bytes: UnsafeRawBufferPointer, to destination: InternetAddress?, from source: DatagramSource? = nil) {
        self.bytes = bytes
        self.destination = destination
        self.source = source
    }

    /// The most bytes that a datagram carries: a packet of IPv4 has 65,535 bytes with the headers of IP and
    /// UDP (RFC 791, RFC 768), and in one of IPv6 the first header does not count (RFC 8200, section 3).
    /// Jumbograms (RFC 2675) are left out.
    ///
    /// - Parameter destination: Nil: unknown, and the limit is as for IPv4.
    package static func largestSize(to destination: InternetAddress?) -> Int {
        guard let destination, destination.isIPv6 else { return 65_535 - 20 - 8 }
        let isIPv4 = destination.withHostBytes { $0.starts(with: AddressPrefix.mappedBeginning) }
        return isIPv4 ? 65_535 - 20 - 8 : 65_535 - 8
    }

    /// The error of a datagram with more bytes than `largestSize(to:)`; nil for another.
    package static func sizeError(of size: Int, to destination: InternetAddress?) -> SystemError? {
        // The smallest limit, before the address is looked at.
        guard size > 65_507, case let limit = largestSize(to: destination), size > limit else { return nil }
        let target = destination.map { "\($0.socketAddress): " } ?? ""
        return SystemError(
            "sendmmsg", errno: EMSGSIZE, detail: "\(target)a datagram has at most \(limit) bytes, and this one has \(size)")
    }

    /// Sends it by itself. False: `errno` says why not.
    func send(through descriptor: DatagramDescriptor) -> Bool {
        let flags = CInt(MSG_DONTWAIT | MSG_NOSIGNAL)
        let sent = withUnsafeTemporaryAllocation(byteCount: Self.headerSize, alignment: 16) { room in
            // The kernel reads them only.
            var part = iovec(iov_base: UnsafeMutableRawPointer(mutating: bytes.baseAddress), iov_len: bytes.count)
            return withUnsafeMutablePointer(to: &part) { part in
                var header = msghdr()
                header.msg_iov = part
                header.msg_iovlen = 1
                address(&header, in: room, on: descriptor.families)
                return retryingOnInterrupt { sendmsg(descriptor.socket.rawValue, &header, flags) }
            }
        }
        return sent >= 0
    }

    /// A `sockaddr_in6`, and the packet information.
    private static var headerSize: Int { 32 + DatagramSource.space }

    private func address(
        _ header: inout msghdr, in room: UnsafeMutableRawBufferPointer, on families: DatagramDescriptor.Families
    ) {
        if let destination, let name = room.baseAddress {
            header.msg_name = name
            header.msg_namelen = destination.copy(to: name)
        }
        guard let source else { return }
        let control = UnsafeMutableRawBufferPointer(rebasing: room[32...])
        var writer = ControlMessageWriter(control)
        source.write(to: &writer, on: families)
        header.msg_control = control.baseAddress
        header.msg_controllen = writer.count
    }

    /// True when one send can hold both.
    fileprivate func goes(with other: OutgoingDatagram) -> Bool {
        destination == other.destination && source == other.source
    }
}

/// Datagrams in the form that sendmmsg(2) takes: messages, each with one datagram or with a run of equal size
/// that the kernel cuts up (UDP GSO).
struct DatagramBatch {
    private let messages: UnsafeMutablePointer<CLinux_message>
    private let parts: UnsafeMutablePointer<iovec>
    private let names: UnsafeMutableRawPointer
    private let controls: UnsafeMutableRawPointer
    private(set) var messageCount = 0
    private var partCount = 0

    private static let messageLimit = 64
    private static let partLimit = 1024
    /// Every kernel with UDP GSO cuts one send into so many (`UDP_MAX_SEGMENTS`; newer ones allow 128).
    static let segmentLimit = 64
    private static let nameSize = 32
    private static let controlSize =
        DatagramSource.space + ControlMessageWriter.space(for: MemoryLayout<UInt16>.size)
    /// The bytes that it needs for its headers: less than a block.
    static let size =
        messageLimit * (MemoryLayout<CLinux_message>.stride + nameSize + controlSize) + partLimit * MemoryLayout<iovec>.stride

    /// - Parameter room: At least `size` bytes, aligned to 16.
    init(in room: UnsafeMutableRawPointer) {
        messages = room.bindMemory(to: CLinux_message.self, capacity: Self.messageLimit)
        parts = UnsafeMutableRawPointer(messages + Self.messageLimit).bindMemory(to: iovec.self, capacity: Self.partLimit)
        names = UnsafeMutableRawPointer(parts + Self.partLimit)
        controls = names + Self.messageLimit * Self.nameSize
    }

    /// Sends the messages. The result is the kernel's: how many messages were sent, or -1 and `errno` for the
    /// first.
    func send(through descriptor: DatagramDescriptor) -> Int {
        let flags = CInt(MSG_DONTWAIT | MSG_NOSIGNAL)
        return Int(
            retryingOnInterrupt { CLinux_sendmmsg(descriptor.socket.rawValue, messages, UInt32(messageCount), flags) })
    }

    /// How many datagrams the first messages hold.
    func datagramCount(inFirst count: Int) -> Int {
        (0..<count).reduce(0) { $0 + messages[$1].header.msg_iovlen }
    }

    /// The size of the datagrams in the first message, but the last.
    var firstSize: Int { partCount > 0 ? parts[0].iov_len : 0 }

    /// Appends one message with the first datagrams.
    ///
    /// - Parameter largestSegment: The size of datagrams up to which runs may go into one send; 0: none.
    /// - Returns: How many it has taken; 0 when another message does not fit.
    mutating func append(
        _ datagrams: UnsafeBufferPointer<OutgoingDatagram>.SubSequence, on families: DatagramDescriptor.Families,
        largestSegment: Int
    ) -> Int {
        guard let first = datagrams.first, messageCount < Self.messageLimit, partCount < Self.partLimit else { return 0 }
        let room = min(Self.segmentLimit, Self.partLimit - partCount)
        let run = first.bytes.count <= largestSegment ? Self.run(at: datagrams.prefix(room)) : 1
        var header = msghdr()
        header.msg_iov = parts + partCount
        header.msg_iovlen = run
        for datagram in datagrams.prefix(run) {
            // The kernel reads them only.
            let start = UnsafeMutableRawPointer(mutating: datagram.bytes.baseAddress)
            (parts + partCount).initialize(to: iovec(iov_base: start, iov_len: datagram.bytes.count))
            partCount += 1
        }
        address(&header, first, on: families, segmentSize: run > 1 ? first.bytes.count : nil)
        (messages + messageCount).initialize(to: CLinux_message(header: header, length: 0))
        messageCount += 1
        return run
    }

    /// How many of the first datagrams go into one send: all of one size but the last, which may be smaller.
    private static func run(at datagrams: UnsafeBufferPointer<OutgoingDatagram>.SubSequence) -> Int {
        guard let first = datagrams.first, !first.bytes.isEmpty else { return 1 }
        var (count, total) = (1, first.bytes.count)
        for datagram in datagrams.dropFirst() {
            let size = datagram.bytes.count
            guard (1...first.bytes.count).contains(size), total + size <= 65_507, datagram.goes(with: first) else { break }
            count += 1
            total += size
            if size < first.bytes.count { break }
        }
        return count
    }

    private func address(
        _ header: inout msghdr, _ datagram: OutgoingDatagram, on families: DatagramDescriptor.Families, segmentSize: Int?
    ) {
        if let destination = datagram.destination {
            header.msg_name = names + messageCount * Self.nameSize
            header.msg_namelen = destination.copy(to: header.msg_name)
        }
        guard datagram.source != nil || segmentSize != nil else { return }
        let control = UnsafeMutableRawBufferPointer(
            start: controls + messageCount * Self.controlSize, count: Self.controlSize)
        var writer = ControlMessageWriter(control)
        datagram.source?.write(to: &writer, on: families)
        if let segmentSize {
            writer.append(CInt(SOL_UDP), UDP_SEGMENT, size: MemoryLayout<UInt16>.size)?
                .storeBytes(of: UInt16(truncatingIfNeeded: segmentSize), as: UInt16.self)
        }
        header.msg_control = control.baseAddress
        header.msg_controllen = writer.count
    }
}
