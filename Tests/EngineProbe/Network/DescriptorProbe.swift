internal import AsyncSocketsTesting
internal import Glibc
internal import SocketCore

/// A listener whose process runs out of descriptors pauses for longer each time, up to a second, and loses no
/// connection. A second shortage starts with a short pause again.
enum DescriptorProbe {
    private enum Told: Sendable {
        case accepted(SocketDescriptor, from: SocketEndpoint)
        case paused(SystemError, seconds: Double, at: Deadline)
    }

    static func run() throws {
        let mailbox = Mailbox<Told>()
        let acceptor = try listen { mailbox.put($0) }
        for _ in 0..<2 {
            var taken: [CInt] = []
            let client = try connect(to: acceptor.localAddress)
            guard case .accepted(let first, _) = try mailbox.next() else { throw ProbeFailure(description: "paused at once") }
            let second = try connectInVain(to: acceptor.localAddress, mailbox, &taken)
            client.close()
            first.close()
            try expect(second, mailbox)
            second.close()
            for descriptor in taken { close(descriptor) }
        }
    }

    /// Now a descriptor is available for it.
    private static func expect(_ client: SocketDescriptor, _ mailbox: Mailbox<Told>) throws {
        while true {
            guard case .accepted(_, let peer) = try mailbox.next() else { continue }
            guard peer == client.localAddress else { throw ProbeFailure(description: "another connection came: \(peer)") }
            return
        }
    }

    private static func listen(tell: @escaping @Sendable (Told) -> Void) throws -> Acceptor {
        let receiver = Acceptor.Receiver(
            accepted: { tell(.accepted($0, from: $1)) },
            paused: { tell(.paused($0, seconds: $1, at: .now)) },
            closed: {}
        )
        let acceptor = try Acceptor(on: .loopback(), loop: SocketEventLoop.next(), receiver: receiver)
        acceptor.start()
        return acceptor
    }

    private static func connect(to address: SocketEndpoint) throws -> SocketDescriptor {
        let descriptor = try SocketDescriptor(streamOf: .ipv4)
        if case .failed(let error) = descriptor.connect(to: address) { throw error }
        return descriptor
    }

    /// Opens a connection that takes the last descriptor, so that it cannot be accepted and the listener
    /// pauses.
    ///
    /// libdispatch occasionally opens a file. If it closes one too late, there is an additional descriptor.
    /// If it opens one too late, that takes the last. In both cases try again.
    private static func connectInVain(
        to address: SocketEndpoint, _ mailbox: Mailbox<Told>, _ taken: inout [CInt]
    ) throws -> SocketDescriptor {
        for _ in 0..<8 {
            try useUpDescriptors(&taken)
            let connection: SocketDescriptor
            do {
                connection = try connect(to: address)
            } catch let error as SystemError where error.errno == EMFILE {
                continue
            }
            guard let accepted = try acceptedInsteadOfPausing(in: mailbox) else { return connection }
            accepted.close()
            connection.close()
        }
        throw ProbeFailure(description: "connections were accepted without a descriptor")
    }

    /// Leaves one descriptor.
    private static func useUpDescriptors(_ taken: inout [CInt]) throws {
        var limit = rlimit(rlim_cur: 64, rlim_max: 64)
        guard setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw ProbeFailure(description: "setrlimit")
        }
        while case let descriptor = dup(0), descriptor >= 0 { taken.append(descriptor) }
        if let last = taken.popLast() { close(last) }
    }

    /// Expects consecutive pauses, each twice as long as the previous one and at most a second. Returns nil,
    /// or the connection that was accepted instead.
    private static func acceptedInsteadOfPausing(in mailbox: Mailbox<Told>) throws -> SocketDescriptor? {
        var previous: (seconds: Double, at: Deadline)?
        for expected in [0.05, 0.1, 0.2, 0.4, 0.8, 1] {
            let error: SystemError, seconds: Double, time: Deadline
            switch try mailbox.next() {
            case .accepted(let connection, _): return connection
            case .paused(let reason, let length, let begin): (error, seconds, time) = (reason, length, begin)
            }
            guard error.errno == EMFILE, seconds == expected else {
                throw ProbeFailure(description: "\(error), a pause of \(seconds) s instead of \(expected)")
            }
            if let previous, time.seconds(since: previous.at) < previous.seconds {
                throw ProbeFailure(description: "the pause of \(previous.seconds) s was cut short")
            }
            previous = (seconds, time)
        }
        return nil
    }
}
