// Rules of the error queue:
//  1. EPOLLERR signals an error, and is reported again until the queue and `SO_ERROR` are both empty.
//     `takeErrors(atMost:)` drains both and returns whether they are empty.
//  2. It takes a limited number of errors per call, because a peer controls how many errors there are.
//  3. The kernel reports each error twice, through `SO_ERROR` and in the queue. `takeErrors(atMost:)`
//     returns it once. If the queue is full, the error is available only through `SO_ERROR`, which does not
//     identify the peer.

internal import CLinux
internal import Glibc

/// An asynchronous error caused by a datagram that was sent earlier.
package struct DatagramError: Error, Hashable, Sendable {
    package enum Origin: Hashable, Sendable {
        /// This machine, for example because a datagram is too large for the path. The send call failed too.
        case local
        /// A router or the peer's machine, reported by ICMP (RFC 792; RFC 4443).
        case network(type: UInt8, code: UInt8)
        /// The kernel has lost the details.
        case unknown
    }

    package let errno: CInt
    package let origin: Origin
    /// The destination of the datagram, or `nil` if the kernel has lost the details.
    package let destination: SocketEndpoint?
    /// The sender of the ICMP message.
    package let reporter: SocketEndpoint?
    /// For EMSGSIZE, the largest packet that fits the path.
    package let pathMTU: Int?

    /// The error in the form of a failed system call, with the destination.
    package var systemError: SystemError {
        let error = SystemError("sendmmsg", errno: errno)
        return destination.map { error.about($0) } ?? error
    }
}

extension DatagramDescriptor {
    /// Takes pending errors caused by sent datagrams.
    ///
    /// - Returns: The errors. If `isDrained` is `true`, the queue is empty and an event reports the next
    ///   error. Otherwise, call this again.
    package func takeErrors(atMost limit: Int = 32) -> (errors: [DatagramError], isDrained: Bool) {
        let pending = socket.takeError(of: "sendmmsg")
        var errors: [DatagramError] = []
        for _ in 0..<limit {
            switch takeQueuedError() {
            case .error(let error): errors.append(error)
            case .other: break
            case .none:
                if let pending, !errors.contains(where: { $0.errno == pending.errno }) {
                    errors.append(DatagramError(pending))
                }
                return (errors, true)
            }
        }
        return (errors, false)
    }

    private enum QueueAnswer {
        case error(DatagramError)
        /// Another message in the queue, such as a transmit timestamp.
        case other
        case none
    }

    private func takeQueuedError() -> QueueAnswer {
        withUnsafeTemporaryAllocation(byteCount: Self.controlSize, alignment: 8) { control in
            var name = sockaddr_storage()
            return withUnsafeMutableBytes(of: &name) { name in
                var message = msghdr()
                message.msg_name = name.baseAddress
                message.msg_namelen = socklen_t(name.count)
                message.msg_control = control.baseAddress
                message.msg_controllen = control.count
                let flags = CInt(MSG_ERRQUEUE | MSG_DONTWAIT)
                guard retryingOnInterrupt({ recvmsg(socket.rawValue, &message, flags) }) >= 0 else { return .none }
                let length = min(Int(message.msg_namelen), name.count)
                let destination = SocketEndpoint(UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(name)[..<length]))
                let messages = UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(control)[..<Int(message.msg_controllen)])
                return DatagramError(messages, to: destination).map { .error($0) } ?? .other
            }
        }
    }

    /// An extended error with an address takes 64 bytes. The metadata of a received datagram may be
    /// included too.
    private static let controlSize = 512
}

extension DatagramError {
    fileprivate init(_ error: SystemError) {
        self.init(errno: error.errno, origin: .unknown, destination: nil, reporter: nil, pathMTU: nil)
    }

    /// Returns `nil` if the control messages contain no datagram error.
    init?(_ control: UnsafeRawBufferPointer, to destination: SocketEndpoint?) {
        var reader = ControlMessageReader(control)
        while let message = reader.next() {
            guard [CInt(IPPROTO_IP), CInt(IPPROTO_IPV6)].contains(message.level),
                [IP_RECVERR, IPV6_RECVERR].contains(message.type)
            else { continue }
            // `struct sock_extended_err` contains a union, so Swift cannot load it as a whole.
            guard let number: CInt = message.value(), let kind: (UInt8, UInt8, UInt8) = message.value(at: 4),
                let fact: UInt32 = message.value(at: 8), let origin = Origin(kind), number != 0
            else { return nil }
            errno = number
            self.origin = origin
            self.destination = destination
            // `SO_EE_OFFENDER`, which is `AF_UNSPEC` for a local error.
            reporter = SocketEndpoint(
                UnsafeRawBufferPointer(rebasing: message.data.dropFirst(MemoryLayout<sock_extended_err>.size)))
            pathMTU = number == EMSGSIZE && fact > 0 ? Int(fact) : nil
            return
        }
        return nil
    }
}

extension DatagramError.Origin {
    /// Returns `nil` for messages that are not errors: transmit timestamps and completions.
    fileprivate init?(_ error: (origin: UInt8, type: UInt8, code: UInt8)) {
        switch CInt(error.origin) {
        case SO_EE_ORIGIN_LOCAL: self = .local
        case SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6: self = .network(type: error.type, code: error.code)
        case SO_EE_ORIGIN_NONE: self = .unknown
        default: return nil
        }
    }
}
