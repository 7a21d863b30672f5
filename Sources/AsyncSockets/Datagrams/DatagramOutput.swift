// Rules of sending:
//  1. Datagrams are sent in the order of the calls. A datagram waiting for a host lookup, for the filter or
//     for the peer of a `connect` delays all later datagrams.
//  2. Each datagram is completed exactly once: sent, dropped by the filter (reported as sent), failed,
//     cancelled, or discarded when the socket closes.
//  3. A failure affects only one datagram. The next datagram is tried in the same turn.
//  4. A turn sends a limited number of datagrams, so that other sockets on the loop are served.
//  5. After the marker of `startDTLS`, datagrams are queued until the socket is secure. Then each datagram is
//     encrypted when it is sent. If the kernel has no room for it, it is encrypted again later, which is
//     possible because DTLS tolerates missing records.

internal import FoundationEssentials
internal import SocketBuffers
internal import SocketCore
internal import Synchronization

enum DatagramPeer {
    case none
    /// The socket is connecting. Datagrams for the peer are queued.
    case connecting
    case connected(InternetAddress)

    var address: InternetAddress? {
        if case .connected(let address) = self { address } else { nil }
    }

    var socketAddress: SocketEndpoint? { address?.socketAddress }
}

/// The sending half of a UDP socket. Confined to the turn.
final class DatagramOutput {
    private enum Route {
        case waits
        case fails(AsyncSocketError)
        case skips
        case leaves(DatagramChannel, to: InternetAddress?, from: DatagramSource?)
    }

    private let queue = DatagramSendQueue()
    @exclusivity(unchecked) var lookups = HostLookups()
    @exclusivity(unchecked) private var filter: SendFilter?
    @exclusivity(unchecked) var configuration = DatagramConfiguration.initial
    @exclusivity(unchecked) private(set) var byteCount = 0
    @exclusivity(unchecked) private(set) var datagramCount = 0
    /// The datagrams to send with one call. Their bytes are stored in `block`. Empty outside the pump.
    @exclusivity(unchecked) private var batch: [OutgoingDatagram] = []
    private let block = PreBuffer()
    private let outbox: EventOutbox<DatagramEvent>
    private let counts: DatagramCounts
    private let post: @Sendable (DatagramMessage) -> Void

    /// DTLS, or `nil` on a plaintext socket.
    @exclusivity(unchecked) private var layer: DatagramLayer?
    /// Whether the marker of `startDTLS` is in the queue, or the handshake is in progress.
    @exclusivity(unchecked) private var isStartingTLS = false

    private static let batchLimit = 64
    /// Smaller than `batchLimit`, because datagrams that the kernel has no room for are encrypted again.
    private static let secureBatchLimit = 16
    private static let batchesPerTurn = 8

    init(_ outbox: EventOutbox<DatagramEvent>, _ counts: DatagramCounts, post: @escaping @Sendable (DatagramMessage) -> Void) {
        self.outbox = outbox
        self.counts = counts
        self.post = post
    }

    var isEmpty: Bool { queue.isEmpty }

    func setFilter(_ filter: SendFilter?) {
        self.filter = filter
    }

    // MARK: - DTLS

    func appendStartTLS() {
        isStartingTLS = true
        queue.appendStartTLS()
    }

    /// Whether all datagrams before the marker have been sent.
    var isAtStartTLS: Bool { queue.isAtStartTLS }

    func secure(_ layer: DatagramLayer) {
        self.layer = layer
    }

    /// Called when the socket is secure.
    func removeStartTLS() {
        isStartingTLS = false
        queue.removeStartTLS()
    }

    // MARK: - Requests

    func enqueue(_ packet: consuming DatagramPacket, _ peer: DatagramPeer) {
        if let error = refusal(of: packet.data.count, to: packet.target, peer) { return answer(packet.completion, error) }
        let limit = max(configuration.value.maximumPendingSendBytes, 0)
        guard !queue.wouldExceed(limit, with: packet.data.count) else {
            return answer(packet.completion, .sendQueueFull(limit))
        }
        if let query = packet.target.query {
            lookups.begin(query, asking: configuration.value.resolver) { [post] in post(.resolved(query, $0)) }
        }
        queue.append(packet)
        if let count = queue.takeHighWater(configuration.value.sendHighWaterMark) { outbox.append(.highWater(count)) }
    }

    /// Returns an error if the datagram can never be sent to its target.
    private func refusal(of size: Int, to target: DatagramTarget, _ peer: DatagramPeer) -> AsyncSocketError? {
        var destination: InternetAddress?
        switch (target, peer) {
        case (.peer, .none): return .notConnected
        case (.peer, .connecting): break
        case (.peer, .connected(let address)): destination = address
        case (.address(let address, _), .none): destination = address
        // A reply to the peer.
        case (.address(let address, _), .connected(let peer)) where address == peer: destination = address
        case (.host, .none): break
        case (.address, _), (.host, _): return .hasPeer
        }
        let limit = configuration.value.maximumSendLength
        return OutgoingDatagram.sizeError(of: size, to: destination, limit: limit)
            .map { AsyncSocketError(datagram: $0, .send) }
    }

    /// Sends a task's datagram immediately, if no other work must be done first.
    ///
    /// - Returns: `nil` if the datagram must be queued.
    func sendAtOnce(
        _ bytes: UnsafeRawBufferPointer, to target: DatagramTarget, _ channels: [DatagramChannel], _ peer: DatagramPeer
    ) -> Result<Void, any Error>? {
        guard queue.isEmpty, filter == nil, !isStartingTLS else { return nil }
        if let error = refusal(of: bytes.count, to: target, peer) { return .failure(error) }
        let (address, source): (InternetAddress?, DatagramSource?)
        switch target {
        case .peer: (address, source) = (peer.address, nil)
        case .address(let given, let from): (address, source) = (given, from)
        case .host: return nil
        }
        guard let address, let channel = channels.first(where: { $0.reaches(address) }), channel.mayHaveRoom else { return nil }
        if let error = layer?.refusal(of: bytes.count) { return .failure(error) }
        let datagram =
            address == peer.address
            ? OutgoingDatagram(bytes, to: nil) : OutgoingDatagram(bytes, to: address, from: source)
        let report =
            layer == nil
            ? channel.send(datagram)
            : withUnsafePointer(to: datagram) { send(UnsafeBufferPointer(start: $0, count: 1), through: channel) }
        guard report.handledCount == 1 else { return nil }
        if let failure = report.failures.first {
            return .failure(AsyncSocketError(datagram: failure.error.about(address.socketAddress), .send))
        }
        byteCount += bytes.count
        datagramCount += 1
        return .success(())
    }

    /// Makes the peer's address the explicit destination of datagrams queued for the peer. Called when the
    /// socket is disconnected from the peer.
    func aim(at peer: InternetAddress) {
        queue.retarget(to: peer)
    }

    // MARK: - The pump

    /// Sends the datagrams that can be sent. Returns whether another turn is required to send the rest.
    func pump(_ channels: [DatagramChannel], _ peer: DatagramPeer) -> Bool {
        defer { clearBatch() }
        for _ in 0..<Self.batchesPerTurn {
            clearBatch()
            guard let channel = fillBatch(channels, peer) else { return finishPump(hasMore: false) }
            let report = batch.withUnsafeBufferPointer { send($0, through: channel) }
            note(report, peer)
            // The DTLS connection has failed.
            if report.handledCount == 0, layer?.end != nil { return finishPump(hasMore: false) }
        }
        return finishPump(hasMore: !queue.isEmpty)
    }

    private func finishPump(hasMore: Bool) -> Bool {
        queue.startClock()
        if queue.isAboveHighWater, let count = queue.takeLowWater(configuration.value.sendHighWaterMark) {
            outbox.append(.lowWater(count))
        }
        counts.pendingSendBytes.store(queue.waitingByteCount, ordering: .relaxed)
        return hasMore
    }

    private func clearBatch() {
        guard !batch.isEmpty else { return }
        batch.removeAll(keepingCapacity: true)
        block.reset()
    }

    /// Fills the batch with the oldest datagrams that one channel can send now. Returns `nil` if no datagram
    /// can be sent or the kernel has no room.
    private func fillBatch(_ channels: [DatagramChannel], _ peer: DatagramPeer) -> DatagramChannel? {
        var channel: DatagramChannel?
        let limit = layer == nil ? Self.batchLimit : Self.secureBatchLimit
        while batch.count < limit, let packet = queue.packet(at: batch.count) {
            switch route(packet, channels, peer) {
            case .waits: return channel
            case .fails(let error):
                guard batch.isEmpty else { return channel }
                finishFront(error)
            case .skips:
                guard batch.isEmpty else { return channel }
                finishFront(nil)
            case .leaves(let next, let address, let source):
                guard channel == nil ? next.mayHaveRoom : channel === next, let bytes = copy(packet.pointee.data) else {
                    return channel
                }
                channel = next
                batch.append(OutgoingDatagram(bytes, to: address, from: source))
            }
        }
        return channel
    }

    /// Appends a copy of the payload to the block. Returns `nil` if the block has no room. An empty block has
    /// room for the largest datagram.
    private func copy(_ data: Data) -> UnsafeRawBufferPointer? {
        let start = block.count
        // Requests the whole block, so that its memory never moves.
        guard data.count <= block.writableBytes(minimum: BufferPool.blockSize - start).count else { return nil }
        data.withUnsafeBytes { block.append($0) }
        return UnsafeRawBufferPointer(rebasing: block.readableBytes[start...])
    }

    private func route(_ packet: UnsafeMutablePointer<DatagramPacket>, _ channels: [DatagramChannel], _ peer: DatagramPeer)
        -> Route
    {
        let address: InternetAddress
        var source: DatagramSource?
        switch packet.pointee.target {
        case .peer:
            switch peer {
            case .none: return .fails(.notConnected)
            case .connecting: return .waits
            case .connected(let peer): address = peer
            }
        case .address(let given, let from): (address, source) = (given, from)
        case .host(let query):
            switch lookups.answer(to: query) {
            case nil: return .waits
            case .failure(let error): return .fails(AsyncSocketError(error))
            case .success(let addresses):
                guard let chosen = choose(addresses, channels) else { return .fails(unreachable(query.host, channels)) }
                address = chosen
            }
        }
        guard let channel = channels.first(where: { $0.reaches(address) }) else {
            return .fails(unreachable("\(address.socketAddress)", channels))
        }
        if let error = layer?.refusal(of: packet.pointee.data.count) { return .fails(error) }
        switch judge(packet, address) {
        // A datagram to the connected peer needs neither a destination nor a source address.
        case .accepted where address == peer.address: return .leaves(channel, to: nil, from: nil)
        case .accepted: return .leaves(channel, to: address, from: source)
        case .dropped: return .skips
        case .unasked, .asked: return .waits
        }
    }

    /// Returns the error for an unreachable destination. If no channel is open, the `connect` call that would
    /// have opened the socket has failed in the meantime.
    private func unreachable(_ destination: String, _ channels: [DatagramChannel]) -> AsyncSocketError {
        channels.isEmpty ? .notOpen(.send) : .unreachable(destination)
    }

    /// Returns the first reachable address of the preferred family, or else the first reachable address.
    private func choose(_ addresses: [SocketEndpoint], _ channels: [DatagramChannel]) -> InternetAddress? {
        let usable = addresses.filter { address in channels.contains { $0.reaches(InternetAddress(address)) } }
        let chosen = usable.first { $0.family == configuration.value.preferredFamily } ?? usable.first
        return chosen.map { InternetAddress($0) }
    }

    private func judge(_ packet: UnsafeMutablePointer<DatagramPacket>, _ address: InternetAddress) -> DatagramPacket.Filtering {
        guard case .unasked = packet.pointee.filtering else { return packet.pointee.filtering }
        guard let filter else { return .accepted }
        let number = packet.pointee.number
        packet.pointee.filtering = .asked
        let question = DatagramSendQuestion(
            data: packet.pointee.data, address: address.socketAddress, tag: packet.pointee.completion.tag)
        let verdict = filter.judge(question) { [post] in post(.judgedSend(number: number, $0)) }
        if let verdict { noteVerdict(verdict, on: number) }
        return packet.pointee.filtering
    }

    func noteVerdict(_ isAccepted: Bool, on number: UInt64) {
        queue.packet(numbered: number)?.pointee.filtering = isAccepted ? .accepted : .dropped
    }

    private func send(_ datagrams: UnsafeBufferPointer<OutgoingDatagram>, through channel: DatagramChannel)
        -> DatagramSendReport
    {
        guard let layer else { return channel.send(datagrams) }
        // The layer's own datagrams are sent first, so that the report covers only the data.
        guard layer.flush(), datagrams.allSatisfy({ layer.seal($0.bytes) }) else { return DatagramSendReport() }
        defer { layer.dropOutput() }
        return layer.send()
    }

    private func note(_ report: DatagramSendReport, _ peer: DatagramPeer) {
        var failures = report.failures[...]
        for position in 0..<report.handledCount {
            guard let failure = failures.first, failure.position == position else {
                finishFront(nil)
                continue
            }
            failures.removeFirst()
            let target = batch[position].destination ?? peer.address
            finishFront(AsyncSocketError(datagram: target.map { failure.error.about($0.socketAddress) } ?? failure.error, .send))
        }
    }

    // MARK: - Completion

    private func finishFront(_ error: AsyncSocketError?) {
        guard let packet = queue.removeFront() else { return }
        if error == nil {
            byteCount += packet.data.count
            datagramCount += 1
        }
        finish(packet, error)
    }

    private func finish(_ packet: DatagramPacket, _ error: AsyncSocketError?) {
        lookups.end(packet.target.query)
        answer(packet.completion, error)
    }

    func answer(_ completion: Completion<Void>, _ error: AsyncSocketError?) {
        switch completion {
        case .delegate(let tag): outbox.append(error.map { .didNotSend(tag: tag, $0) } ?? .didSend(tag: tag))
        case .waiter(let waiter): waiter.complete(error.map { .failure($0) } ?? .success(()))
        case .answered: break
        }
    }

    func drop(_ error: AsyncSocketError) {
        while let packet = queue.drop() { finish(packet, error) }
        counts.pendingSendBytes.store(0, ordering: .relaxed)
    }

    /// Returns false if the waiter's datagram is not in the queue.
    func cancel(_ waiter: AnyObject, _ error: any Error) -> Bool {
        guard let packet = queue.cancel(waiter) else { return false }
        lookups.end(packet.target.query)
        if case .waiter(let waiter) = packet.completion { waiter.complete(.failure(error)) }
        return true
    }

    // MARK: - Deadlines

    var deadline: Deadline? { queue.hasDeadline ? queue.deadline : nil }

    func expire(at now: Deadline) {
        while let waiter = queue.lateWaiter(at: now), cancel(waiter, waiter.lateError) {}
        guard let timeout = queue.packet(at: 0)?.pointee.timeout, queue.isFrontLate(at: now) else { return }
        finishFront(.timeout(.writeTimeout, .send, fault: .system, seconds: timeout))
    }
}
