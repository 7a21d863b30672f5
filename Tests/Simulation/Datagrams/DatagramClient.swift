internal import AsyncSockets
internal import Foundation

/// A client of a `DatagramListener` that repeats its requests until the replies have arrived.
final class DatagramClient: RunSide, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    let name: String
    private let index: Int
    private let course: DatagramRun
    private let plan: DatagramPlan
    private var socket: AsyncUDPSocket?
    private weak var observed: AsyncUDPSocket?
    private(set) var hasFinished = false
    private var replies = 0
    /// How often each message was sent, and received by the server.
    private var sentCounts: [Int: Int] = [:]
    private var arrivedCounts: [Int: Int] = [:]

    init(_ index: Int, _ course: DatagramRun) {
        (self.index, self.course, plan, name) = (index, course, course.plan, "client \(index)")
        let socket = AsyncUDPSocket.simulated()
        (self.socket, observed) = (socket, socket)
    }

    var isReleased: Bool { observed == nil }

    private func complain(_ text: String) { course.scheduler.fail("\(name): \(text)") }

    func run() {
        guard let socket, let address = SocketEndpoint(literal: "127.0.0.1", port: DatagramRun.port) else { return }
        Task { [self] in
            do {
                try await socket.connect(to: address)
                if plan.isSecure { try await socket.startDTLS(settings: Certificates.client) }
                for number in 0..<plan.counts[0] { try await request(number, socket) }
                try await socket.close()
            } catch {
                let code = (error as? AsyncSocketError)?.code
                // If too many datagrams are lost, one side gives up.
                let isEnd = code == .handshakeTimeout || code == .closedByPeer
                if !plan.isDisturbed, plan.isReliable || !isEnd { complain("\(error)") }
                socket.disconnect()
            }
            if hasFinished { complain("finishes twice") }
            hasFinished = true
        }
    }

    private func request(_ number: Int, _ socket: AsyncUDPSocket) async throws {
        let data = Parcel.data(index, number, [20, 0, 300, 1_000][course.pick(4, 2 * index)])
        for _ in 0..<30 {
            sentCounts[number, default: 0] += 1
            do { try await socket.send(data) } catch let error as AsyncSocketError where error.code == .system {}
            do {
                while true {
                    let reply = try await socket.receive(timeout: .milliseconds(500)).data
                    guard let received = Parcel.number(of: reply, from: index) else { return complain("an altered reply") }
                    if received == number { return replies += 1 }
                    // A late reply to an earlier request.
                    if received > number { complain("a reply to request \(received), which was not sent") }
                }
            } catch let error as AsyncSocketError where error.code == .readTimeout {}
        }
    }

    // MARK: - The server's view

    func owns(_ data: Data) -> Bool { Parcel.number(of: data, from: index) != nil }

    /// With DTLS, the server receives a request at most as often as it was sent.
    func noteArrival(_ data: Data) {
        guard let number = Parcel.number(of: data, from: index) else { return }
        arrivedCounts[number, default: 0] += 1
        let copies = plan.isSecure ? sentCounts[number] ?? 0 : course.kernel.network.arrived[Array(data)] ?? 0
        if arrivedCounts[number, default: 0] > copies { complain("request \(number) is received too often") }
    }

    func disconnect() { socket?.disconnect() }

    func complaintAtEnd() -> String? {
        if !hasFinished { return "the task does not finish" }
        if plan.isDisturbed || !plan.isReliable { return nil }
        return replies == plan.counts[0] ? nil : "\(replies) of \(plan.counts[0]) requests have a reply"
    }

    func abandon() { socket = nil }
}
