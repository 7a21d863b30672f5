internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// A `connect` command over UDP or DTLS.
struct DatagramSession: Sendable {
    private enum Event: Sendable {
        case inputEnded
        case peerEnded
    }

    private static let maximumLineBytes = 65507

    let endpoint: Endpoint
    let plan: TLSClientPlan?
    let options: ConnectOptions
    let data: ExchangeOptions
    let reporter: Reporter

    func run() async throws {
        guard case .host(let host, let port) = endpoint else {
            throw Failure.usage("\(endpoint) is not a UDP address", advice: "pass a host and a port")
        }
        let plan = try await plan?.prepared(for: endpoint, within: options.timeout.duration)
        let (input, output) = (try DescriptorReader.standardInput(), try DescriptorWriter.standardOutput())
        try await AsyncUDPSocket.withConnection(
            to: host, port: port, timeout: options.timeout.duration, executor: nil,
            configure: { $0.failsHandshakeOnDeliveryFailure = true }
        ) { socket in
            reporter.detail("sending to \(endpoint)")
            if let plan { reporter.describe(try await socket.startDTLS(settings: plan.settings, trust: plan.trust)) }
            try await exchange(socket, input, output)
        }
    }

    private func exchange(_ socket: AsyncUDPSocket, _ input: DescriptorReader, _ output: DescriptorWriter) async throws {
        let failures = try socket.deliveryFailures()
        let count = try await withThrowingTaskGroup(of: Int.self) { group in
            group.addTask { await report(failures) }
            try await copy(socket, input, output)
            group.cancelAll()
            return try await group.next() ?? 0
        }
        if count > 0 {
            throw Failure("\(count) \(count == 1 ? "datagram was" : "datagrams were") not delivered", status: .connectionLost)
        }
    }

    /// Prints the failures until the task is cancelled, and returns their number.
    private func report(_ failures: AsyncStream<DeliveryFailure>) async -> Int {
        var count = 0
        for await failure in failures {
            reporter.note("not delivered: \(Failure(failure.error).message)")
            count += 1
        }
        return count
    }

    private func copy(_ socket: AsyncUDPSocket, _ input: DescriptorReader, _ output: DescriptorWriter) async throws {
        try await withThrowingTaskGroup(of: Event.self) { group in
            group.addTask { try await upload(socket, input) }
            group.addTask { try await download(socket, output) }
            while let event = try await group.next() {
                // After the peer has closed the session, a line that remains in the input fails to be sent.
                // Someone who types has no reason to continue.
                if case .peerEnded = event, !input.isTerminal { continue }
                return group.cancelAll()
            }
        }
        try await drain(socket, output)
    }

    private func upload(_ socket: AsyncUDPSocket, _ input: DescriptorReader) async throws -> Event {
        var (endings, lines) = (LineEndings(), LineSplitter())
        while let bytes = try await input.read(atMost: options.datagramSize ?? 65536) {
            if options.datagramSize != nil {
                try await socket.send(bytes)
                continue
            }
            for line in lines.lines(in: data.crlf ? endings.converted(bytes) : bytes) { try await socket.send(line) }
            guard lines.pendingCount <= Self.maximumLineBytes else {
                throw Failure(
                    "a line of the input is longer than a datagram (\(Self.maximumLineBytes) bytes)",
                    advice: "split the input with --datagram-size", status: .usage)
            }
        }
        if let last = lines.lastLine() { try await socket.send(last) }
        return .inputEnded
    }

    private func download(_ socket: AsyncUDPSocket, _ output: DescriptorWriter) async throws -> Event {
        for try await datagram in socket.datagrams {
            // In another task: the end of the input cancels this one, but must not interrupt the write.
            try await Task { try await output.write(datagram.data) }.value
        }
        return .peerEnded
    }

    /// Prints the datagrams that arrive after the end of the input, until none arrives for a while.
    private func drain(_ socket: AsyncUDPSocket, _ output: DescriptorWriter) async throws {
        do {
            while true { try await output.write(socket.receive(timeout: options.linger.duration).data) }
        } catch let error as AsyncSocketError where error.code == .readTimeout || error.isOrderlyEnd {}
    }
}
