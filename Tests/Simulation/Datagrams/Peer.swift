internal import AsyncSockets
internal import CSimulation
internal import Dispatch
internal import Foundation

/// One of two UDP sockets that send messages to each other.
class Peer: RunSide, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name: String
    let index: Int
    let course: DatagramRun
    let plan: DatagramPlan
    /// The queue of the filters and, of some sides, of the delegate.
    let queue: DispatchQueue
    private(set) var socket: AsyncUDPSocket?
    private weak var observed: AsyncUDPSocket?
    /// How often each message was received.
    private var received: [Int: Int] = [:]
    /// Whether all messages that are received from now on must have been encrypted.
    var isProtected = false
    private(set) var isSecure = false
    private(set) var hasFinished = false
    private(set) var lastArrival: UInt64

    init(_ index: Int, _ course: DatagramRun) {
        (self.index, self.course, plan, name) = (index, course, course.plan, "side \(index)")
        (queue, lastArrival) = (DispatchQueue(label: "side \(index)"), course.kernel.now)
        let socket = AsyncUDPSocket.simulated()
        if !plan.isSecure { socket.maximumReceiveSize = plan.maximumSize }
        do {
            // All sockets are open before shortages begin.
            course.kernel.hasNoFaults = true
            try socket.bind(toPort: port(of: index), interface: "127.0.0.1")
            course.kernel.hasNoFaults = false
        } catch {
            complain("\(error)")
        }
        if plan.filters[index] != .none {
            let queue = plan.filters[index] == .queue ? queue : nil
            socket.setReceiveFilter(on: queue) { _ in .accept() }
            socket.setSendFilter(on: queue) { _, _, _ in true }
        }
        (self.socket, observed) = (socket, socket)
    }

    func run() {}

    var isReleased: Bool { observed == nil }
    var mustConnect: Bool { plan.isConnected || plan.isSecure }
    var peerAddress: SocketEndpoint? { SocketEndpoint(literal: "127.0.0.1", port: port(of: 1 - index)) }
    /// The messages before the upgrade, and after it.
    var earlyNumbers: Range<Int> { 0..<plan.earlyCounts[index] }
    var laterNumbers: Range<Int> { plan.earlyCounts[index]..<plan.earlyCounts[index] + plan.counts[index] }

    private func port(of side: Int) -> UInt16 { DatagramRun.port + UInt16(side) }

    func complain(_ text: String) { course.scheduler.fail("\(name): \(text)") }

    func message(_ number: Int) -> Data {
        // Depends on the number alone, so that the message can be made again.
        let size = [20, 0, 300, 1_000][Int(Choices.mix(course.choices.seed, UInt64(2 * number + index)) % 4)]
        return Parcel.data(index, number, size)
    }

    func noteSecured() {
        if isSecure { complain("becomes secure twice") }
        (isProtected, isSecure, lastArrival) = (true, true, course.kernel.now)
    }

    /// - Parameter error: Why the socket has closed. Errors during a disturbance are expected.
    func finish(_ error: (any Error)?) {
        if hasFinished { complain("finishes twice") }
        hasFinished = true
        guard let error, !plan.isDisturbed else { return }
        let code = (error as? AsyncSocketError)?.code
        let isEnd = code == .closedByPeer || code == .handshakeTimeout && !plan.isReliable
        if !isEnd, !mayBeForged(error) { complain("\(error)") }
    }

    /// Alerts are not authenticated during a handshake, so an attacker can abort it.
    func mayBeForged(_ error: any Error) -> Bool {
        plan.faults.forgeries > 0 && (error as? AsyncSocketError)?.tls?.code == .peerAlert
    }

    func note(_ datagram: Datagram) {
        course.trace.add("received", index, datagram.data.count)
        lastArrival = course.kernel.now
        if datagram.arrival.isTruncated, !plan.isSecure { return noteTruncated(datagram) }
        // Without DTLS, the records of the peer are datagrams.
        if plan.isSecure, !isProtected, DatagramRun.isRecord(Array(datagram.data)) { return }
        guard let number = Parcel.number(of: datagram.data, from: 1 - index) else {
            return complain("an altered datagram: \(datagram.data.count) bytes")
        }
        if datagram.sender.port != port(of: 1 - index) { complain("a datagram from \(datagram.sender)") }
        if isProtected, number < plan.earlyCounts[1 - index] || number == Parcel.forged {
            complain("message \(number) is received after the upgrade, but was not encrypted")
        }
        received[number, default: 0] += 1
        let copies = isProtected ? 1 : course.kernel.network.arrived[Array(datagram.data)] ?? 0
        if received[number, default: 0] > copies { complain("message \(number) is received more than \(copies) times") }
    }

    private func noteTruncated(_ datagram: Datagram) {
        let (data, size) = (datagram.data, datagram.arrival.fullSize)
        if data.count != plan.maximumSize { complain("\(data.count) bytes of \(size) are left, not \(plan.maximumSize)") }
        // Each arrival is noted with all its bytes.
        let whole = course.kernel.network.arrived.keys.filter { $0.count == size && $0.starts(with: data) }
        guard whole.count == 1, let number = Parcel.number(of: Data(whole[0]), from: 1 - index) else {
            return complain("a truncated datagram is altered")
        }
        received[number, default: 0] += 1
    }

    /// A message without DTLS that was sent successfully has been passed to the kernel.
    func noteSent(_ number: Int) {
        if plan.isSecure, number >= plan.earlyCounts[index] { return }
        if course.sentCounts[Array(message(number))] == nil { complain("message \(number) was not sent, but reported") }
    }

    // MARK: - The end

    func disconnect() { socket?.disconnect() }

    /// The messages that the kernel has received for this socket, but that were not delivered.
    private var missing: [Int] {
        course.kernel.network.arrived.compactMap { bytes, copies in
            guard let number = Parcel.number(of: Data(bytes), from: 1 - index) else { return nil }
            return received[number] == copies ? nil : number
        }
    }

    func complaintAtEnd() -> String? {
        if !hasFinished { return "the socket does not close" }
        if plan.isDisturbed { return nil }
        if plan.isSecure { return plan.isReliable && !isSecure ? "the handshake is incomplete" : nil }
        return missing.isEmpty ? nil : "the messages \(missing.sorted()) are missing"
    }

    func abandon() { socket = nil }
}
