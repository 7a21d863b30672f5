internal import AsyncSockets
internal import CSimulation
internal import Foundation

/// One of two UDP sockets that send messages to each other, with tasks.
final class PeerSide: RunSide, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name: String
    private let index: Int
    private let course: DatagramRun
    private let plan: DatagramPlan
    private var socket: AsyncUDPSocket?
    private weak var observed: AsyncUDPSocket?
    /// How often each message was received.
    private var received: [Int: Int] = [:]
    /// The messages that were sent successfully, with their sizes.
    private var sent: [Int: Int] = [:]
    private var hasFinished = false
    private var isSecure = false

    init(_ index: Int, _ course: DatagramRun) {
        (self.index, self.course, plan, name) = (index, course, course.plan, "side \(index)")
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
        (self.socket, observed) = (socket, socket)
    }

    var isReleased: Bool { observed == nil }

    private func port(of side: Int) -> UInt16 { DatagramRun.port + UInt16(side) }
    private func address(of side: Int) -> SocketEndpoint? { SocketEndpoint(literal: "127.0.0.1", port: port(of: side)) }
    private func complain(_ text: String) { course.scheduler.fail("\(name): \(text)") }

    func run() {
        guard let socket else { return }
        Task { [self] in
            do {
                try await perform(socket)
            } catch {
                course.trace.add("fails", index)
                let code = (error as? AsyncSocketError)?.code
                // The peer may be closed already.
                let isEnd = code == .closedByPeer || code == .handshakeTimeout
                if !plan.isDisturbed, plan.isReliable || !isEnd { complain("\(error)") }
                socket.disconnect()
            }
            if hasFinished { complain("finishes twice") }
            hasFinished = true
        }
    }

    private func perform(_ socket: AsyncUDPSocket) async throws {
        let mustConnect = plan.isConnected || plan.isSecure
        if mustConnect, let peer = address(of: 1 - index) { try await socket.connect(to: peer) }
        if plan.isSecure {
            // The marker of the upgrade: what is sent afterwards is encrypted.
            course.expectEncryption(of: port(of: index))
            if index == 0 {
                try await socket.startDTLS(settings: Certificates.client)
            } else {
                try await socket.startDTLS(settings: Certificates.server)
            }
            isSecure = true
        }
        async let sending: Void = send(socket)
        try await receive(socket)
        try await sending
        if plan.isSecure, index == 1 { await course.suspend(40_000_000_000) }
        try await socket.close()
    }

    // MARK: - Messages

    private func send(_ socket: AsyncUDPSocket) async throws {
        for number in 0..<plan.counts[index] {
            let size = [20, 0, 300, 1_000][course.pick(4, 2 * index)]
            let data = Parcel.data(index, number, size)
            do {
                if plan.isConnected || plan.isSecure {
                    try await socket.send(data)
                } else if let peer = address(of: 1 - index) {
                    try await socket.send(data, to: peer)
                }
                sent[number] = data.count
            } catch let error as AsyncSocketError where error.code == .system {
                // An error of this or an earlier datagram.
                course.trace.add("send fails", index, number)
            }
            if course.pick(4, 2 * index) == 1 { await course.suspend(UInt64(course.pick(20, 2 * index)) * 1_000_000) }
        }
    }

    /// Receives until nothing has arrived for a while.
    private func receive(_ socket: AsyncUDPSocket) async throws {
        while true {
            do {
                if course.pick(6, 2 * index + 1) == 1 { try await cancelReceive(socket) }
                try note(await socket.receive(timeout: .seconds(20)))
            } catch let error as AsyncSocketError where error.code == .readTimeout {
                return
            } catch let error as AsyncSocketError where error.code == .closedByPeer && plan.isSecure {
                return
            }
        }
    }

    /// A cancelled receive loses no datagram.
    private func cancelReceive(_ socket: AsyncUDPSocket) async throws {
        let receiving = Task { try await socket.receive(timeout: .seconds(20)) }
        for _ in 0..<course.pick(4, 2 * index + 1) { await course.yield() }
        receiving.cancel()
        switch await receiving.result {
        case .success(let datagram): note(datagram)
        case .failure(is CancellationError): break
        case .failure(let error): throw error
        }
    }

    private func note(_ datagram: Datagram) {
        course.trace.add("received", index, datagram.data.count)
        if datagram.arrival.isTruncated, !plan.isSecure { return noteTruncated(datagram) }
        guard let number = Parcel.number(of: datagram.data, from: 1 - index) else {
            return complain("an altered datagram: \(datagram.data.count) bytes")
        }
        if datagram.sender.port != port(of: 1 - index) { complain("a datagram from \(datagram.sender)") }
        received[number, default: 0] += 1
        let copies = plan.isSecure ? 1 : course.kernel.network.arrived[Array(datagram.data)] ?? 0
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

    // MARK: - The end

    func disconnect() { socket?.disconnect() }

    /// The messages that the kernel has received for the peer, and that the peer has not received.
    private func missing() -> [Int] {
        course.kernel.network.arrived.compactMap { bytes, copies in
            guard let number = Parcel.number(of: Data(bytes), from: 1 - index) else { return nil }
            return received[number] == copies ? nil : number
        }
    }

    func complaintAtEnd() -> String? {
        if !hasFinished { return "the task does not finish" }
        if plan.isDisturbed { return nil }
        if plan.isSecure { return plan.isReliable && !isSecure ? "the handshake is incomplete" : nil }
        let missing = missing()
        return missing.isEmpty ? nil : "the messages \(missing.sorted()) are missing"
    }

    func abandon() { socket = nil }
}
