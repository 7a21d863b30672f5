internal import FoundationEssentials
internal import Glibc
internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS

/// The listeners that a process hands over together.
struct HandoverParty: Sendable {
    private let listeners: [(name: String, listener: any HandoverListener)]

    init(_ streams: [String: SocketListener], _ datagrams: [String: DatagramListener]) throws(AsyncSocketError) {
        let all: [(String, any HandoverListener)] = streams.map { ($0, $1) } + datagrams.map { ($0, $1) }
        listeners = all.sorted { $0.0 < $1.0 }.map { (name: $0, listener: $1) }
        guard !listeners.isEmpty else { throw .badParameter(.restart, "the list of listeners is empty: pass at least one") }
        if let name = streams.keys.first(where: { datagrams[$0] != nil }) {
            throw .badParameter(.restart, "two listeners have the name \"\(name)\"")
        }
        for (name, listener) in listeners where !listener.isListening {
            throw .badParameter(.restart, "the listener \"\(name)\" is closed: pass a listener that is open")
        }
        // The socket at the path is handed over too.
        let limit = PacketSocket.maximumDescriptorCount - 1
        let count = listeners.reduce(0) { $0 + $1.listener.socketCount }
        guard count <= limit else {
            throw .badParameter(.restart, "at most \(limit) sockets can be handed over, but there are \(count)")
        }
    }

    private var logger: Logger? { listeners.first?.listener.logger }

    private var acceptors: [Acceptor] { listeners.flatMap(\.listener.acceptors) }

    private var isListening: Bool { listeners.allSatisfy { $0.listener.isListening } }

    func note(_ fault: String, _ error: (any Error)? = nil) {
        logger?.warning("\(fault)", metadata: error.map { ["reason": "\($0)"] })
    }

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
        try await Self.untilClosing(listeners.map { $0.listener }[...], body)
    }

    private static func untilClosing<Result: Sendable>(
        _ listeners: ArraySlice<any HandoverListener>, _ body: @escaping @Sendable () async throws -> Result?
    ) async throws -> Result? {
        guard let first = listeners.first else { return try await body() }
        return try await first.untilClosing { try await untilClosing(listeners.dropFirst(), body) }
    }

    /// Accepts the connection of a new process. If descriptors or memory run out, tries again.
    ///
    /// - Throws: `CancellationError` if the task is cancelled.
    nonisolated(nonsending) func successor(at door: PacketSocket) async throws -> PacketSocket {
        while true {
            do throws(SystemError) {
                return try await door.accept()
            } catch {
                try Task.checkCancellation()
                note("a new process could not connect", error)
                try await Task.sleep(for: .seconds(1))
            }
        }
    }

    /// The result of an offer.
    enum Outcome {
        /// The new process has permission to serve, and the listeners are closing.
        case handedOver
        case stays
    }

    /// Offers the sockets to a new process.
    nonisolated(nonsending) func handOver(
        to successor: PacketSocket, _ door: PacketSocket, _ keys: TLSRotatingTicketKeys, _ startTimeout: Duration,
        _ closeTimeout: Duration?
    ) async -> Outcome {
        do throws(SystemError) {
            try successor.checkPeer()
        } catch {
            note("a new process did not take over", error)
            return .stays
        }
        let files = acceptors.map { ($0, $0.lendFile()) }
        let doorFile = door.lendFile()
        func stay(_ error: (any Error)?) -> Outcome {
            for (acceptor, file) in files { acceptor.returnFile(file) }
            door.returnFile(doorFile)
            try? successor.send(HandoverReply.late)
            note("a new process did not take over", error)
            return .stays
        }
        var isOffered = false
        do {
            try offer(to: successor, door, doorFile, files.map(\.1), keys)
            isOffered = true
            try await expectReply(of: successor, startTimeout)
        } catch {
            // A process that is closing anyway lets the new process serve.
            guard isOffered, !isListening, !successor.hasEnded else { return stay(error) }
        }
        for (_, listener) in listeners { await listener.leaveSockets() }
        // If that takes too long, the new process gives up.
        guard !successor.hasEnded || !isListening else {
            for (_, listener) in listeners { await listener.resumeSockets() }
            return stay(nil)
        }
        // The service manager learns it from this process, before this process may exit.
        notify(.mainProcess(successor.peerProcess))
        for (_, listener) in listeners { listener.beginClosing(timeout: closeTimeout) }
        door.close()
        try? successor.send(HandoverReply.closing)
        logger?.info("a new process took over")
        return .handedOver
    }

    /// Sends the descriptors and the keys.
    private func offer(
        to successor: PacketSocket, _ door: PacketSocket, _ doorFile: UnixSocketFile?, _ files: [UnixSocketFile?],
        _ keys: TLSRotatingTicketKeys
    ) throws {
        var numbers: [CInt] = [try door.duplicate()]
        defer { for number in numbers { close(number) } }
        var (offered, files) = ([HandoverOffer.Listener](), files[...])
        for (name, listener) in listeners {
            let (first, count) = (numbers.count, listener.socketCount)
            try listener.duplicateSockets(into: &numbers)
            guard listener.isListening, numbers.count == first + count else {
                throw AsyncSocketError.handover("a listener is closed", fault: .caller)
            }
            let ofListener = files.prefix(listener.acceptors.count)
            files = files.dropFirst(ofListener.count)
            let places = (0..<count).map { $0 < ofListener.count ? ofListener[ofListener.startIndex + $0]?.place : nil }
            offered.append(
                HandoverOffer.Listener(name: name, files: places, cookieSecrets: listener.cookieSecrets.map { Data($0) }))
        }
        let json = try JSONEncoder().encode(HandoverOffer(door: doorFile?.place, offered))
        try json.withUnsafeBytes { try successor.send($0, descriptors: numbers) }
        try keys.withRecords { try successor.send($0, descriptors: []) }
    }

    /// Returns when the new process is ready.
    private nonisolated(nonsending) func expectReply(of successor: PacketSocket, _ timeout: Duration) async throws {
        let reply = try await successor.receive(until: Deadline(after: timeout.inSeconds))
        reply?.closeDescriptors()
        // The successor may have exited after it sent its reply.
        guard reply?.bytes == HandoverReply.ready, !successor.hasEnded else {
            throw AsyncSocketError.handover("the new process closed the connection before it was ready")
        }
    }

    /// Continues with the cookie secrets of the old process.
    func adopt(_ secrets: [String: Data]) {
        for (name, listener) in listeners {
            guard let secrets = secrets[name], !listener.adoptCookieSecrets(Array(secrets)) else { continue }
            note("the cookie secrets of the old process cannot be read")
        }
    }

    func takeFiles() {
        for acceptor in acceptors { acceptor.takeFile() }
    }
}
