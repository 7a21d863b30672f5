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
    /// How often the sockets have sent a datagram with these bytes.
    private(set) var sentCounts: [[UInt8]: Int] = [:]
    /// The peers that have sent a record.
    private(set) var handshakes: Set<Int> = []

    required init(_ choices: Choices, _ trace: Trace) {
        // The scheduler makes the first choices.
        let scheduler = Scheduler(choices, trace)
        plan = DatagramPlan(choices)
        super.init(scheduler, plan.faults)
    }

    override func run() -> Violation? {
        trace.note("\(plan)")
        kernel.change { network in
            (network.link, network.splitsMessages) = (plan.link, plan.splitsMessages)
            network.inspect = { [unowned self] packet in inspect(packet) }
            network.forge = { Array(Parcel.data($0.from.port == Self.port ? 0 : 1, Parcel.forged, 20)) }
        }
        sides = kernel.serving { makeSides() }
        return play(sides, disturbance: plan.isDisturbed ? { [self] in disturb() } : nil)
    }

    private func makeSides() -> [any RunSide] {
        if !plan.hasListener {
            return [0, 1].map { plan.styles[$0] == .tasks ? PeerSide($0, self) : PeerDelegate($0, self) }
        }
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

    /// Each message is sent once, unless DTLS repeats it. After an upgrade, all datagrams are records.
    private func inspect(_ packet: Packet) {
        let (bytes, port) = (packet.bytes, packet.from.port)
        sentCounts[bytes, default: 0] += 1
        let index = Int(port) - Int(Self.port)
        if plan.isSecure, Self.isRecord(bytes) {
            handshakes.insert(index)
            return
        }
        if plan.mode == .secureListener { return complain(packet, "is not encrypted") }
        if plan.hasListener { return }
        guard let number = Parcel.number(of: Data(bytes), from: index) else { return complain(packet, "is altered") }
        if plan.isSecure, number >= plan.earlyCounts[index] { complain(packet, "is not encrypted") }
        if sentCounts[bytes] != 1 { complain(packet, "is sent twice") }
    }

    private func complain(_ packet: Packet, _ text: String) {
        scheduler.fail("a datagram of port \(packet.from.port) \(text): \(packet.bytes.prefix(20))")
    }

    /// Whether a datagram consists of DTLS records (RFC 6347, section 4.1).
    static func isRecord(_ bytes: [UInt8]) -> Bool {
        var rest = bytes[...]
        while rest.count > 13 {
            let header = Array(rest.prefix(13))
            guard (20...23).contains(header[0]), header[1] == 254, header[2] >= 253 else { return false }
            rest = rest.dropFirst(13 + Int(header[11]) << 8 + Int(header[12]))
            if rest.isEmpty { return true }
        }
        return false
    }
}

/// The messages of a run. Each has the number of its side and its own number in front. The first byte is not
/// that of a DTLS record.
enum Parcel {
    /// The number of the messages of an attacker.
    static let forged = 1_000_000

    static func data(_ side: Int, _ number: Int, _ count: Int) -> Data {
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: number &* 31 &+ $0 &+ side) }
        return Data("m \(side) \(number) \(count)\n".utf8) + Data(bytes)
    }

    /// Returns the number of a message, or `nil` if the message is altered.
    static func number(of data: Data, from side: Int) -> Int? {
        let fields = data.prefix { $0 != Pattern.lineFeed }.split(separator: UInt8(ascii: " "))
            .compactMap { Int(String(decoding: $0, as: UTF8.self)) }
        guard data.first == UInt8(ascii: "m"), fields.count == 3, fields[0] == side, (0...2_000).contains(fields[2]) else {
            return nil
        }
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
