internal import FoundationEssentials
internal import Glibc
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The listeners that a process hands over together.
struct HandoverParty: Sendable {
    private let listeners: [(name: String, listener: SocketListener)]

    init(_ listeners: [String: any ServingListener]) throws(AsyncSocketError) {
        var all: [(String, SocketListener)] = []
        for (name, listener) in listeners.sorted(by: { $0.key < $1.key }) {
            guard let listener = listener as? SocketListener else {
                throw .badParameter(.restart, "the listener \"\(name)\" cannot be handed over: only a SocketListener can")
            }
            all.append((name, listener))
        }
        guard !all.isEmpty else { throw .badParameter(.restart, "the list of listeners is empty: pass at least one") }
        let count = all.reduce(0) { $0 + $1.1.listener.acceptors.count }
        guard count <= PacketSocket.maximumDescriptorCount else {
            throw .badParameter(
                .restart, "at most \(PacketSocket.maximumDescriptorCount) sockets can be handed over, but there are \(count)")
        }
        self.listeners = all
    }

    private var logger: Logger? { listeners.first?.listener.logger }

    func note(_ fault: String, _ error: (any Error)? = nil) {
        logger?.warning("\(fault)", metadata: error.map { ["reason": "\($0)"] })
    }

    func noteReplacement() { logger?.info("a new process took over") }

    /// Notifies the service manager of the process.
    func notify(_ notifications: ServiceManager.Notification...) {
        do throws(AsyncSocketError) {
            for notification in notifications { try ServiceManager.current?.notify(notification) }
        } catch {
            note("the service manager was not notified", error)
        }
    }

    /// Calls `body`, and cancels it when one of the listeners starts to close.
    func untilClosing<Result: Sendable>(_ body: @escaping @Sendable () async throws -> Result?) async throws -> Result? {
        try await Self.untilClosing(listeners[...].map(\.listener)[...], body)
    }

    private static func untilClosing<Result: Sendable>(
        _ listeners: ArraySlice<SocketListener>, _ body: @escaping @Sendable () async throws -> Result?
    ) async throws -> Result? {
        guard let first = listeners.first else { return try await body() }
        return try await first.untilClosing { try await untilClosing(listeners.dropFirst(), body) }
    }

    /// Sends the descriptors and the keys, and returns when the successor is ready.
    nonisolated(nonsending) func offer(
        to successor: PacketSocket, _ keys: TLSRotatingTicketKeys, _ timeout: Duration
    ) async throws {
        var numbers: [CInt] = []
        defer { for number in numbers { close(number) } }
        var offered: [HandoverOffer.Listener] = []
        for (name, listener) in listeners {
            var paths: [String?] = []
            for acceptor in listener.listener.acceptors {
                guard let number = try acceptor.duplicate() else { continue }
                numbers.append(number)
                paths.append(acceptor.filePath)
            }
            offered.append(HandoverOffer.Listener(name: name, filePaths: paths))
        }
        let json = try JSONEncoder().encode(HandoverOffer(offered))
        try json.withUnsafeBytes { try successor.send($0, descriptors: numbers) }
        try keys.withRecords { try successor.send($0, descriptors: []) }
        let reply = try await successor.receive(until: Deadline(after: timeout.inSeconds))
        // A successor that has exited since then cannot serve.
        guard reply?.bytes == HandoverReply.ready, !successor.hasEnded else {
            throw AsyncSocketError.handover("the new process closed the connection before it was ready")
        }
    }

    /// Stops accepting. The successor has the descriptors.
    func handOver(_ closeTimeout: Duration?) {
        for (_, listener) in listeners {
            for acceptor in listener.listener.acceptors { acceptor.leaveFile() }
            listener.beginClosing(timeout: closeTimeout)
        }
    }

    func takeFiles() {
        for (_, listener) in listeners {
            for acceptor in listener.listener.acceptors { acceptor.takeFile() }
        }
    }
}
