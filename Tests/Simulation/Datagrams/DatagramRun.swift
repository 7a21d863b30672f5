internal import AsyncSockets
internal import CSimulation
internal import Foundation
internal import Glibc

/// A run of two UDP sockets, or of a `DatagramListener` and its clients.
final class DatagramRun: Run, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    static let port: UInt16 = 9_000

    let plan: DatagramPlan
    private var sides: [any RunSide] = []
    /// The sides that have begun DTLS, by their ports.
    private var securePorts: Set<UInt16> = []

    required init(_ choices: Choices, _ trace: Trace) {
        // The scheduler makes the first choices.
        let scheduler = Scheduler(choices, trace)
        plan = DatagramPlan(choices)
        super.init(scheduler, plan.faults)
    }

    override func run() -> Violation? {
        trace.note("\(plan)")
        kernel.change { network in
            network.link = plan.link
            network.inspect = { [unowned self] packet in inspect(packet) }
        }
        sides = kernel.serving { makeSides() }
        return play(sides, disturbance: plan.isDisturbed ? { [self] in disturb() } : nil)
    }

    private func makeSides() -> [any RunSide] {
        if !plan.hasListener { return [PeerSide(0, self), PeerSide(1, self)] }
        let listener = PeerListener(self)
        let clients = (0..<plan.clientCount).map { DatagramClient($0, self) }
        listener.clients = clients
        return [listener] + clients
    }

    private func disturb() {
        CSim_set_simulated(false)
        scheduler.wait { [self] in scheduler.steps >= plan.disturbanceStep || isQuiet }
        trace.note("disturbance")
        kernel.serving { sides[plan.disturbedSide].disconnect() }
    }

    func pick(_ count: Int, _ side: Int) -> Int { choices.pick(count, Choices.Stream.sides + UInt16(side)) }

    // MARK: - The wire

    /// From now on, datagrams of the socket must be encrypted.
    func expectEncryption(of port: UInt16) { securePorts.insert(port) }

    private func inspect(_ packet: Packet) {
        guard securePorts.contains(packet.from.port) || plan.mode == .secureListener else { return }
        let isRecord = packet.bytes.first.map { (20...25).contains($0) || (32...63).contains($0) } ?? false
        if !isRecord { scheduler.fail("a datagram of port \(packet.from.port) is not encrypted: \(packet.bytes.prefix(20))") }
    }
}

/// The messages of a run. Each has the number of its side and its own number in front.
enum Parcel {
    static func data(_ side: Int, _ number: Int, _ count: Int) -> Data {
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: number &* 31 &+ $0 &+ side) }
        return Data("\(side) \(number) \(count)\n".utf8) + Data(bytes)
    }

    /// Returns the number of a message, or `nil` if the message is altered.
    static func number(of data: Data, from side: Int) -> Int? {
        let fields = data.prefix { $0 != Pattern.lineFeed }.split(separator: UInt8(ascii: " "))
            .compactMap { Int(String(decoding: $0, as: UTF8.self)) }
        guard fields.count == 3, fields[0] == side, (0...2_000).contains(fields[2]) else { return nil }
        return data == Self.data(side, fields[1], fields[2]) ? fields[1] : nil
    }
}

extension AsyncUDPSocket {
    /// A socket of the simulation, which has IPv4 only.
    static func simulated() -> AsyncUDPSocket {
        let socket = AsyncUDPSocket()
        socket.isIPv6Enabled = false
        return socket
    }
}
