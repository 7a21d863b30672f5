internal import CSimulation
internal import Glibc

/// The connections of a run, and the bytes in transit.
struct Network {
    private(set) var ends: [StreamEnd] = []
    /// The connections that are being established.
    var handshakes: [Handshake] = []
    var listeners: [ListeningSocket] = []
    /// The UDP sockets, and the datagrams in transit.
    var sockets: [DatagramSocket] = []
    var packets: [Packet] = []
    /// Whether a message can contain several datagrams (UDP GSO).
    var splitsMessages = false
    /// The datagrams that the sockets have sent.
    var seen: [Packet] = []
    /// Returns the bytes that an attacker sends with the addresses of a datagram.
    var forge: (Packet) -> [UInt8] = { _ in [] }
    /// How often the sockets have received a datagram with these bytes.
    var arrived: [[UInt8]: Int] = [:]
    /// Sees each datagram that the kernel takes.
    var inspect: (Packet) -> Void = { _ in }
    /// How the connections of `connect(2)` transport bytes.
    var link = Link()
    /// The places that do not follow `link`.
    var routes: [Place: Route] = [:]
    var counts = Counts()

    /// How a connection transports bytes.
    struct Link {
        /// How many bytes fit into the sender's and the receiver's buffer in the kernel.
        var sendCapacity = 65_536
        var receiveCapacity = 65_536
        /// Nanoseconds.
        var latency: UInt64 = 0
    }

    /// What happens to an attempt to connect to a place without a listener.
    struct Route {
        enum Outcome { case accepted, refused, lost }

        let outcome: Outcome
        /// Nanoseconds until the outcome.
        let latency: UInt64
    }

    mutating func connect(_ link: Link, _ kernel: Kernel) -> (StreamEnd, StreamEnd) {
        let (first, second) = makePair(link)
        for end in [first, second] { _ = kernel.open(end) }
        return (first, second)
    }

    /// Returns two ends without descriptors.
    mutating func makePair(_ link: Link) -> (StreamEnd, StreamEnd) {
        let (there, back) = (Pipe(link), Pipe(link))
        let first = StreamEnd(ends.count, incoming: back, outgoing: there)
        let second = StreamEnd(ends.count + 1, incoming: there, outgoing: back)
        (first.peer, second.peer) = (second, first)
        (there.receiver, back.receiver) = (second, first)
        (there.sender, back.sender) = (first, second)
        (first.place, second.place) = (Place.standard(first.number), Place.standard(second.number))
        (first.remotePlace, second.remotePlace) = (second.place, first.place)
        ends += [first, second]
        return (first, second)
    }

    /// The directions in which something can arrive now.
    private func deliverable(at now: UInt64) -> [Pipe] { ends.map(\.outgoing).filter { $0.canDeliver(at: now) } }

    private func dueHandshakes(at now: UInt64) -> [Int] { handshakes.indices.filter { handshakes[$0].arrival <= now } }

    private func duePackets(at now: UInt64) -> [Int] { packets.indices.filter { packets[$0].arrival <= now } }

    func deliverableCount(at now: UInt64) -> Int {
        deliverable(at: now).count + dueHandshakes(at: now).count + duePackets(at: now).count
    }

    var nextArrival: UInt64? {
        (ends.compactMap { $0.outgoing.nextArrival } + handshakes.map(\.arrival) + packets.map(\.arrival)).min()
    }

    mutating func deliver(_ index: Int, _ kernel: Kernel) {
        let pipes = deliverable(at: kernel.now)
        if pipes.indices.contains(index) { return pipes[index].deliver(kernel) }
        let due = dueHandshakes(at: kernel.now)
        if due.indices.contains(index - pipes.count) {
            return arrive(handshakes.remove(at: due[index - pipes.count]), kernel)
        }
        let others = duePackets(at: kernel.now)
        let number = index - pipes.count - due.count
        if others.indices.contains(number) { arrive(packets.remove(at: others[number]), kernel) }
    }
}

/// One direction of a connection.
final class Pipe {
    private struct Chunk {
        var count: Int
        let arrival: UInt64
    }

    weak var sender: StreamEnd?
    weak var receiver: StreamEnd?
    private let link: Network.Link
    /// The segments in transit. Their bytes are the first of `bytes`, after `arrived`.
    private var flying: [Chunk] = []
    private var bytes: [UInt8] = []
    private(set) var arrived: [UInt8] = []
    /// How many bytes have arrived in total.
    private(set) var arrivedCount = 0
    private(set) var sentCount = 0
    private var hasFin = false
    private(set) var finHasArrived = false
    /// Whether a send has failed because the buffer was full.
    var mustAnnounceRoom = false
    /// Nothing arrives before that time.
    var stalledUntil: UInt64 = 0
    /// Sees each byte that the kernel takes.
    var inspect: (ArraySlice<UInt8>) -> Void = { _ in }

    init(_ link: Network.Link) { self.link = link }

    var room: Int { max(0, link.sendCapacity - bytes.count) }

    func send(_ sent: [UInt8], at now: UInt64) {
        inspect(sent[...])
        sentCount += sent.count
        bytes += sent
        flying.append(Chunk(count: sent.count, arrival: now + link.latency))
    }

    func finish() { hasFin = true }

    /// Drops the bytes that are still in transit.
    func cut() { (bytes, flying, hasFin) = ([], [], false) }

    func take(_ count: Int) -> ArraySlice<UInt8> {
        defer { arrived.removeFirst(count) }
        return arrived.prefix(count)
    }

    // MARK: - Arrival

    private var isBlocked: Bool { arrived.count >= link.receiveCapacity && receiver?.isClosed == false }

    func canDeliver(at now: UInt64) -> Bool { nextArrival.map { $0 <= now } ?? false }

    /// When something can arrive. `nil` if there is nothing, or if the receiver has no room.
    var nextArrival: UInt64? {
        if let chunk = flying.first { return isBlocked ? nil : max(chunk.arrival, stalledUntil) }
        return hasFin && !finHasArrived ? stalledUntil : nil
    }

    /// Lets some of the bytes arrive, or the FIN after them.
    func deliver(_ kernel: Kernel) {
        guard let sender, let receiver else { return }
        guard !flying.isEmpty else {
            finHasArrived = true
            kernel.trace("fin", receiver)
            return receiver.announce()
        }
        guard !receiver.isClosed else { return sender.fail(ECONNRESET, kernel) }
        let due = flying.prefix { $0.arrival <= kernel.now }.reduce(0) { $0 + $1.count }
        let most = min(due, link.receiveCapacity - arrived.count)
        let isPartial = kernel.happens(3, receiver)
        let count = isPartial ? 1 + kernel.pick(most, receiver) : most
        arrived += bytes.prefix(kernel.defect == .losesBytes && count > 10 ? count - 1 : count)
        if kernel.defect == .doublesBytes, count > 10 { arrived += arrived.suffix(1) }
        arrivedCount += count
        bytes.removeFirst(count)
        drop(count)
        kernel.trace("arrives", receiver, count)
        receiver.announce()
        if mustAnnounceRoom, room > link.sendCapacity / 3 {
            mustAnnounceRoom = false
            if kernel.defect == .losesEdges { return }
            sender.announce()
        }
    }

    private func drop(_ count: Int) {
        var left = count
        while left > 0 {
            let part = min(left, flying[0].count)
            flying[0].count -= part
            left -= part
            if flying[0].count == 0 { flying.removeFirst() }
        }
    }
}

/// A connected stream socket.
final class StreamEnd: KernelObject {
    let number: Int
    let incoming: Pipe
    let outgoing: Pipe
    weak var peer: StreamEnd?
    var place = Place.standard(0)
    var remotePlace = Place.standard(0)
    private(set) var isConnecting = false
    private(set) var isClosed = false
    private var hasShutDown = false
    /// The error that the next call reports.
    private(set) var error: Int32 = 0
    private(set) var isBroken = false
    /// Whether `close` resets the connection (SO_LINGER with zero seconds).
    var resetsOnClose = false

    init(_ number: Int, incoming: Pipe, outgoing: Pipe) {
        (self.number, self.incoming, self.outgoing) = (number, incoming, outgoing)
    }

    override var ownPlace: Place? { place }

    override var readiness: UInt32 {
        if isConnecting { return 0 }
        var events: UInt32 = 0
        if !incoming.arrived.isEmpty || incoming.finHasArrived || isBroken { events |= EPOLLIN.rawValue }
        if outgoing.room > 0 || isBroken || hasShutDown { events |= EPOLLOUT.rawValue }
        if incoming.finHasArrived || isBroken { events |= EPOLLRDHUP.rawValue }
        if incoming.finHasArrived && hasShutDown || isBroken { events |= EPOLLHUP.rawValue }
        if error != 0 { events |= EPOLLERR.rawValue }
        return events
    }

    func takeError() -> Int32 {
        defer { error = 0 }
        return error
    }

    func beginConnecting() { isConnecting = true }

    func finishConnecting() {
        isConnecting = false
        announce()
    }

    // MARK: - Calls

    func receive(_ count: Int, _ kernel: Kernel) -> Result<ArraySlice<UInt8>, Failure> {
        if kernel.happens(kernel.faults.interrupts, self) { return .failure(Failure(EINTR)) }
        guard !incoming.arrived.isEmpty else {
            if error != 0 { return .failure(Failure(takeError())) }
            return incoming.finHasArrived || isBroken ? .success([]) : .failure(Failure(EAGAIN))
        }
        if kernel.happens(kernel.faults.refusals, self) {
            announce()
            return .failure(Failure(EAGAIN))
        }
        var most = min(count, incoming.arrived.count)
        if most > 1, kernel.happens(kernel.faults.shortCounts, self) {
            most = 1 + kernel.pick(most - 1, self)
            announce()
        }
        return .success(incoming.take(most))
    }

    func send(_ bytes: [UInt8], _ kernel: Kernel) -> Result<Int, Failure> {
        if kernel.happens(kernel.faults.interrupts, self) { return .failure(Failure(EINTR)) }
        if isBroken || hasShutDown { return .failure(Failure(error != 0 ? takeError() : EPIPE)) }
        if kernel.happens(kernel.faults.shortages, self) { return .failure(Failure(ENOBUFS)) }
        guard outgoing.room > 0 else {
            outgoing.mustAnnounceRoom = true
            return .failure(Failure(EAGAIN))
        }
        if kernel.happens(kernel.faults.refusals, self) {
            announce()
            return .failure(Failure(EAGAIN))
        }
        var most = min(bytes.count, outgoing.room)
        if most < bytes.count { outgoing.mustAnnounceRoom = true }
        if most > 1, kernel.happens(kernel.faults.shortCounts, self) {
            most = 1 + kernel.pick(most - 1, self)
            announce()
        }
        outgoing.send(Array(bytes.prefix(most)), at: kernel.now)
        return .success(most)
    }

    func shutDown() {
        guard !hasShutDown, !isBroken else { return }
        hasShutDown = true
        outgoing.finish()
        announce()
    }

    /// As Linux does: unread bytes cause a reset, and so does `resetsOnClose`.
    override func close() {
        isClosed = true
        if isBroken || isConnecting { return }
        guard resetsOnClose || !incoming.arrived.isEmpty else { return outgoing.finish() }
        outgoing.cut()
        peer?.fail(ECONNRESET, .shared)
    }

    /// The connection breaks on this side. Bytes that have arrived can still be read.
    func fail(_ code: Int32, _ kernel: Kernel) {
        guard !isBroken else { return }
        (isBroken, isConnecting) = (true, false)
        incoming.cut()
        outgoing.cut()
        if isClosed { return }
        error = code
        kernel.trace("breaks", self, Int(code))
        announce()
    }
}

/// An errno value.
struct Failure: Error {
    let code: Int32
    init(_ code: Int32) { self.code = code }
}
