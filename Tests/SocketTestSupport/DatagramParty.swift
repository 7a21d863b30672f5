internal import AsyncSocketsTesting
internal import Glibc
package import SocketCore

/// A datagram, copied out of its receiver.
package struct Taken: Equatable {
    package let bytes: [UInt8]
    package let sender: SocketEndpoint
    package let arrival: DatagramArrival

    package init(_ datagram: ReceivedDatagram) {
        bytes = Array(datagram.bytes)
        sender = datagram.sender.socketAddress
        arrival = datagram.arrival
    }
}

/// A bound UDP socket with its receiver and sender.
package final class DatagramParty {
    package let descriptor: DatagramDescriptor
    package let receiver: DatagramReceiver
    package let sender: DatagramSender
    package let reception: DatagramReception

    /// - Parameter host: The address to bind to. If nil, the socket stays unbound.
    package init(
        _ host: String? = "127.0.0.1", port: UInt16 = 0, families: DatagramDescriptor.Families = .ipv4,
        wanted: DatagramReception = [], maximumSize: Int = 2048, segments: Bool = true,
        options: SocketOptionSet = SocketOptionSet()
    ) throws {
        descriptor = try DatagramDescriptor(opening: families, options: options)
        reception = try descriptor.prepareReception(wanted)
        if let host { try descriptor.bind(to: .loopback(host, port: port)) }
        receiver = DatagramReceiver(maximumSize: maximumSize, coalesces: reception.contains(.coalescing))
        receiver.localPort = descriptor.localAddress?.port ?? 0
        sender = DatagramSender(for: descriptor, segments: segments)
    }

    package var address: SocketEndpoint {
        get throws {
            guard let address = descriptor.localAddress else { throw Unexpected(description: "the socket has no address") }
            return address
        }
    }

    /// Returns an address with the port of this socket.
    package func address(on host: String) throws -> SocketEndpoint {
        try .loopback(host, port: address.port ?? 0)
    }

    /// Whether a datagram or an error is available. Does not wait.
    package var hasInput: Bool { isReady(for: POLLIN, within: 0) }

    /// Whether the kernel reports errors. Does not wait.
    package var hasErrors: Bool { isReady(for: 0, within: 0) }

    /// Waits until the kernel reports errors.
    package func waitForErrors() throws {
        guard isReady(for: 0, within: Patience.milliseconds) else {
            throw Unexpected(description: "no error arrived within \(Patience.seconds) s")
        }
    }

    private func isReady(for events: Int32, within milliseconds: Int32) -> Bool {
        var entry = pollfd(fd: descriptor.socket.rawValue, events: Int16(events), revents: 0)
        return poll(&entry, 1, milliseconds) == 1
    }

    /// Waits for `count` datagrams.
    package func take(_ count: Int, atMost limit: Int = .max) throws -> [Taken] {
        var taken: [Taken] = []
        while taken.count < count {
            while taken.count < count, let next = receiver.next() { taken.append(Taken(next)) }
            if taken.count == count { break }
            switch receiver.receive(from: descriptor, atMost: limit) {
            case .received: break
            case .wouldBlock:
                guard isReady(for: POLLIN, within: Patience.milliseconds) else {
                    throw Unexpected(description: "nothing arrived within \(Patience.seconds) s")
                }
            case .refused(let error), .denied(let error, _, _), .failed(let error): throw error
            case .exhausted: throw SystemError("recvmmsg", errno: ENOBUFS)
            }
        }
        return taken
    }

    /// Returns all datagrams that have arrived. Does not wait.
    package func takeArrived() throws -> [Taken] {
        var taken: [Taken] = []
        while case .received = receiver.receive(from: descriptor) {
            while let next = receiver.next() { taken.append(Taken(next)) }
        }
        return taken
    }

    @discardableResult
    package func send(
        _ payloads: [[UInt8]], to destination: SocketEndpoint?, from source: DatagramSource? = nil
    ) -> DatagramSendReport {
        send(payloads.map { Payload($0, to: destination, from: source) })
    }

    @discardableResult
    package func send(_ payloads: [Payload]) -> DatagramSendReport {
        payloads.flatMap(\.bytes).withUnsafeBytes { all in
            var offset = 0
            let datagrams = payloads.map { payload in
                defer { offset += payload.bytes.count }
                let slice = UnsafeRawBufferPointer(rebasing: all[offset..<offset + payload.bytes.count])
                return OutgoingDatagram(slice, to: payload.destination.map { InternetAddress($0) }, from: payload.source)
            }
            return datagrams.withUnsafeBufferPointer { sender.send($0) }
        }
    }
}

/// A datagram to send, with its own storage.
package struct Payload {
    package let bytes: [UInt8]
    package let destination: SocketEndpoint?
    package let source: DatagramSource?

    package init(_ bytes: [UInt8], to destination: SocketEndpoint?, from source: DatagramSource? = nil) {
        self.bytes = bytes
        self.destination = destination
        self.source = source
    }
}

extension DatagramSendReport {
    /// Whether all were sent.
    package func isComplete(_ count: Int) -> Bool {
        handledCount == count && failures.isEmpty && rest == .none
    }
}
