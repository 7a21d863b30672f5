internal import CLinux
internal import Glibc
internal import SocketBuffers

/// A datagram to send.
package struct OutgoingDatagram {
    /// Valid only during the call that sends the datagram.
    package let bytes: UnsafeRawBufferPointer
    /// `nil` for the peer of a connected socket.
    package let destination: InternetAddress?
    /// `nil` lets the kernel choose.
    package let source: DatagramSource?

    package init(_ bytes: UnsafeRawBufferPointer, to destination: InternetAddress?, from source: DatagramSource? = nil) {
        self.bytes = bytes
        self.destination = destination
        self.source = source
    }

    /// Returns the largest payload of a datagram in bytes. An IPv4 packet has at most 65,535 bytes
    /// including the IP and UDP headers (RFC 791, RFC 768). The length of an IPv6 packet excludes the IPv6
    /// header (RFC 8200, section 3). Jumbograms (RFC 2675) are not supported.
    ///
    /// - Parameter destination: If `nil`, the IPv4 limit applies.
    package static func largestSize(to destination: InternetAddress?) -> Int {
        guard let destination, destination.isIPv6 else { return 65_535 - 20 - 8 }
        let isIPv4 = destination.withHostBytes { $0.starts(with: AddressPrefix.mappedBeginning) }
        return isIPv4 ? 65_535 - 20 - 8 : 65_535 - 8
    }

    /// Returns an error if `size` is larger than `largestSize(to:)` or `limit`, otherwise `nil`.
    package static func sizeError(of size: Int, to destination: InternetAddress?, limit: Int? = nil) -> SystemError? {
        // 65,507 is the smaller limit of IP, so most calls return without examining the address.
        guard size > min(65_507, limit ?? .max), case let limit = min(largestSize(to: destination), limit ?? .max),
            size > limit
        else { return nil }
        let target = destination.map { "\($0.socketAddress): " } ?? ""
        return SystemError(
            "sendmmsg", errno: EMSGSIZE, detail: "\(target)the datagram has \(size) bytes, but at most \(limit) are allowed")
    }

    /// Sends the datagram with its own system call. On `false`, `errno` contains the error.
    func send(through descriptor: DatagramDescriptor) -> Bool {
        let flags = CInt(MSG_DONTWAIT | MSG_NOSIGNAL)
        let sent = withUnsafeTemporaryAllocation(byteCount: Self.headerSize, alignment: 16) { room in
            // The kernel only reads the bytes.
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

    /// A `sockaddr_in6` and the packet information.
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

    /// Whether one send can carry both datagrams.
    fileprivate func goes(with other: OutgoingDatagram) -> Bool {
        destination == other.destination && source == other.source
    }
}

/// Datagrams in the form that sendmmsg(2) expects. Each message contains one datagram, or a run of equally
/// sized datagrams that the kernel splits (UDP GSO).
struct DatagramBatch {
    private let messages: UnsafeMutablePointer<CLinux_message>
    private let parts: UnsafeMutablePointer<iovec>
    private let names: UnsafeMutableRawPointer
    private let controls: UnsafeMutableRawPointer
    private(set) var messageCount = 0
    private var partCount = 0

    private static let messageLimit = 64
    private static let partLimit = 1024
    /// The number of segments per send that every kernel with UDP GSO supports (`UDP_MAX_SEGMENTS`). Newer
    /// kernels allow 128.
    static let segmentLimit = 64
    private static let nameSize = 32
    private static let controlSize =
        DatagramSource.space + ControlMessageWriter.space(for: MemoryLayout<UInt16>.size)
    /// The bytes needed for the headers, which always fit into a block of the pool.
    static let size =
        messageLimit * (MemoryLayout<CLinux_message>.stride + nameSize + controlSize) + partLimit * MemoryLayout<iovec>.stride

    /// - Parameter room: At least `size` bytes, aligned to 16.
    init(in room: UnsafeMutableRawPointer) {
        messages = room.bindMemory(to: CLinux_message.self, capacity: Self.messageLimit)
        parts = UnsafeMutableRawPointer(messages + Self.messageLimit).bindMemory(to: iovec.self, capacity: Self.partLimit)
        names = UnsafeMutableRawPointer(parts + Self.partLimit)
        controls = names + Self.messageLimit * Self.nameSize
    }

    /// Sends the messages. Returns the kernel's result: the number of messages sent, or -1 with the error
    /// of the first message in `errno`.
    func send(through descriptor: DatagramDescriptor) -> Int {
        let flags = CInt(MSG_DONTWAIT | MSG_NOSIGNAL)
        return Int(
            retryingOnInterrupt { CLinux_sendmmsg(descriptor.socket.rawValue, messages, UInt32(messageCount), flags) })
    }

    func datagramCount(inFirst count: Int) -> Int {
        (0..<count).reduce(0) { $0 + messages[$1].header.msg_iovlen }
    }

    /// The size of each datagram in the first message except the last.
    var firstSize: Int { partCount > 0 ? parts[0].iov_len : 0 }

    /// Appends one message that contains the first datagram or a run of datagrams starting with it.
    ///
    /// - Parameter largestSegment: The largest datagram size for which a run may share one send. 0 disables
    ///   runs.
    /// - Returns: The number of datagrams appended, or 0 if the batch has no room for another message.
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
            // The kernel only reads the bytes.
            let start = UnsafeMutableRawPointer(mutating: datagram.bytes.baseAddress)
            (parts + partCount).initialize(to: iovec(iov_base: start, iov_len: datagram.bytes.count))
            partCount += 1
        }
        address(&header, first, on: families, segmentSize: run > 1 ? first.bytes.count : nil)
        (messages + messageCount).initialize(to: CLinux_message(header: header, length: 0))
        messageCount += 1
        return run
    }

    /// Returns how many of the first datagrams can share one send. All must have the same size, except that
    /// the last may be smaller.
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
