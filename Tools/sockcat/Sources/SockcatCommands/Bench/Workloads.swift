internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc

/// Measures handshakes. Each operation is a handshake on a new connection. Its latency does not include the
/// time for connecting, or the time that a TLS 1.3 server takes to accept the client's certificate.
struct HandshakeWorkload: Sendable {
    let target: BenchTarget

    func perform(_ worker: BenchWorker) async throws {
        try await worker.loop { result in
            var latency = Duration.zero
            try await withDeadline(target.timeout) {
                if target.isDatagram {
                    return try await target.withDatagrams { _, session, duration in
                        latency = duration
                        if session.isResumed { result.resumed += 1 }
                    }
                }
                try await target.withConnection { socket in
                    let start = ContinuousClock.now
                    let isResumed = try await handshake(on: socket) { latency = ContinuousClock.now - start }
                    if isResumed { result.resumed += 1 }
                }
            }
            return .completed(latency)
        }
    }

    /// Returns whether the session was resumed, after `complete` has been called and the server has accepted
    /// the client.
    private nonisolated(nonsending) func handshake(on socket: AsyncSocket, _ complete: () -> Void) async throws -> Bool {
        guard target.awaitsVerdict else {
            let session = try await target.secure(socket)
            complete()
            return session?.isResumed == true
        }
        var isResumed = false
        let verdict = try await target.secureAndConfirm(socket) { session in
            complete()
            isResumed = session.isResumed
        }
        guard verdict == .accepted else {
            throw Failure("the server has not confirmed that it accepts the client's certificate", status: .handshakeFailed)
        }
        return isResumed
    }
}

/// Measures requests. Each worker sends a request on its connection, reads the response, and repeats.
struct RequestWorkload: Sendable {
    let target: BenchTarget
    let request: Data
    let response: Response

    /// The end of a response.
    enum Response: Sendable, Equatable {
        case delimiter(Data)
        case length(Int)
        /// An HTTP/1.1 response.
        case http
    }

    func perform(_ worker: BenchWorker) async throws {
        try await target.withConnection { socket in
            _ = try await target.secure(socket)
            try await worker.loop { result in
                try await withDeadline(target.timeout) {
                    let start = ContinuousClock.now
                    try await socket.write(request)
                    let (count, isLast) = try await readResponse(from: socket)
                    result.bytesSent += request.count
                    result.bytesReceived += count
                    let latency = ContinuousClock.now - start
                    return isLast ? .completedLast(latency) : .completed(latency)
                }
            }
        }
    }

    /// Returns the number of bytes, and whether the server closes the connection after the response.
    private nonisolated(nonsending) func readResponse(from socket: AsyncSocket) async throws -> (count: Int, isLast: Bool) {
        switch response {
        case .delimiter(let delimiter): (try await socket.read(until: delimiter).count, false)
        case .length(let count): (try await socket.read(exactly: count).count, false)
        case .http: try await HTTPResponse.read(from: socket)
        }
    }
}

/// Measures bytes per second, in blocks.
struct BlockWorkload: Sendable {
    let target: BenchTarget
    let direction: Direction
    /// Sent once on each connection, before the measurement.
    let request: Data
    let blockSize: Int

    enum Direction: String, CaseIterable, Sendable {
        /// Sends blocks as fast as the server accepts them. Data from the server is read and counted.
        case send
        /// Receives data as fast as the server sends it.
        case receive
        /// Sends a block and receives it back.
        case echo
    }

    func perform(_ worker: BenchWorker) async throws {
        try await target.withConnection { socket in
            _ = try await target.secure(socket)
            if !request.isEmpty { try await socket.write(request) }
            switch direction {
            case .send: try await send(on: socket, worker)
            case .receive: try await receive(on: socket, worker)
            case .echo: try await echo(on: socket, worker)
            }
        }
    }

    private nonisolated(nonsending) func send(on socket: AsyncSocket, _ worker: BenchWorker) async throws {
        let block = Data(count: blockSize)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                while let data = try? await socket.read() { worker.addReceived(data.count) }
            }
            defer { group.cancelAll() }
            try await worker.loop { result in
                let start = ContinuousClock.now
                try await socket.write(block, timeout: target.timeout)
                result.bytesSent += block.count
                return .completed(ContinuousClock.now - start)
            }
        }
    }

    private nonisolated(nonsending) func receive(on socket: AsyncSocket, _ worker: BenchWorker) async throws {
        try await worker.loop { result in
            let start = ContinuousClock.now
            guard let data = try await socket.read(maxLength: blockSize, timeout: target.timeout) else { return .closed }
            result.bytesReceived += data.count
            return .completed(ContinuousClock.now - start)
        }
    }

    private nonisolated(nonsending) func echo(on socket: AsyncSocket, _ worker: BenchWorker) async throws {
        let block = Data(count: blockSize)
        try await worker.loop { result in
            let start = ContinuousClock.now
            async let sending: Void = socket.write(block, timeout: target.timeout)
            let received = try await socket.read(exactly: blockSize, timeout: target.timeout)
            try await sending
            result.bytesSent += block.count
            result.bytesReceived += received.count
            return .completed(ContinuousClock.now - start)
        }
    }
}
