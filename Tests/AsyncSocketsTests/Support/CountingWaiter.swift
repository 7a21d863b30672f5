import FoundationEssentials
import SocketBuffers
import SocketCore
import SocketTestSupport
import Testing

@testable import AsyncSockets

/// The result of an operation.
enum Outcome: Equatable, Sendable {
    case served
    case cancelled
    case failed(AsyncSocketError.Code)

    init(_ error: any Error) {
        switch error {
        case let error as AsyncSocketError: self = .failed(error.code)
        case is CancellationError: self = .cancelled
        default:
            Issue.record("an operation failed with \(error)")
            self = .cancelled
        }
    }
}

/// A waiter that counts its completions. There must be exactly one.
final class CountingWaiter<Value: Sendable>: OperationWaiter, Sendable {
    private let answers = Locked<[Result<Value, any Error>]>([])
    let deadline: Deadline?
    let lateError: any Error

    init(timeout: Double = -1, _ code: AsyncSocketError.Code = .readTimeout) {
        deadline = Deadline(after: timeout)
        lateError = AsyncSocketError.timeout(code, .read, seconds: timeout)
    }

    func complete(_ result: Result<Value, any Error>) {
        answers.withLock { $0.append(result) }
    }

    var outcomes: [Outcome] {
        answers.withLock { $0 }.map { result in
            switch result {
            case .success: .served
            case .failure(let error): Outcome(error)
            }
        }
    }

    /// Waits for the completion.
    func outcome() async throws -> Outcome {
        try await eventually("the waiter is answered") { !outcomes.isEmpty }
        return try #require(outcomes.first)
    }

    func value() async throws -> Value {
        try await eventually("the waiter is answered") { !outcomes.isEmpty }
        return try #require(answers.withLock { $0.first }).get()
    }
}

/// The operations of a test, each with its own waiter.
final class Operations {
    private var outcomes: [(name: String, list: @Sendable () -> [Outcome])] = []

    private func add<Value>(_ name: String, timeout: Double = -1, _ code: AsyncSocketError.Code = .readTimeout) -> CountingWaiter<
        Value
    > {
        let waiter = CountingWaiter<Value>(timeout: timeout, code)
        outcomes.append((name, { waiter.outcomes }))
        return waiter
    }

    @discardableResult
    func read(
        _ goal: ReadPacket.Goal, on socket: AsyncSocket, maxLength: Int = 1 << 20, timeout: Double = -1
    ) -> CountingWaiter<Data> {
        let waiter: CountingWaiter<Data> = add("read \(outcomes.count): \(goal)", timeout: timeout)
        socket.read(goal, maxLength: maxLength, for: waiter)
        return waiter
    }

    @discardableResult
    func write(_ data: Data, on socket: AsyncSocket, timeout: Double = -1) -> CountingWaiter<Void> {
        let waiter: CountingWaiter<Void> = add(
            "write \(outcomes.count): \(data.count) bytes", timeout: timeout, .writeTimeout)
        socket.write(data, for: waiter)
        return waiter
    }

    @discardableResult
    func startTLS(_ settings: TLSSettings<some TLSRole.Side>, on socket: AsyncSocket) -> CountingWaiter<HandshakeNews> {
        let waiter: CountingWaiter<HandshakeNews> = add("startTLS \(outcomes.count)")
        socket.startTLS(settings, for: waiter)
        return waiter
    }

    var count: Int { outcomes.count }

    /// Waits until all operations have completed.
    func areAnswered() async throws {
        try await eventually("every operation is answered") { outcomes.allSatisfy { !$0.list().isEmpty } }
    }

    /// Checks that each operation has completed once with this result.
    func expect(_ outcome: Outcome, _ comment: String = "") async throws {
        try await areAnswered()
        for (name, list) in outcomes { #expect(list() == [outcome], "\(name) \(comment)") }
    }
}

extension CountingWaiter<HandshakeNews> {
    func session() async throws -> TLSSession {
        guard case .secured(let session?) = try await value() else { throw Unexpected(description: "no session") }
        return session.value
    }
}

/// Task operations with a waiter that the test inspects.
extension AsyncSocket {
    func read(_ goal: ReadPacket.Goal, maxLength: Int = AsyncSocket.defaultMaxLength, for waiter: any OperationWaiter<Data>) {
        guard let connection else { return waiter.complete(.failure(Self.notInUse(.read))) }
        connection.read(ReadPacket.make(goal, maxLength: maxLength, timeout: -1, completion: .waiter(waiter)))
    }

    func write(_ data: Data, for waiter: any OperationWaiter<Void>) {
        guard let connection else { return waiter.complete(.failure(Self.notInUse(.write))) }
        connection.write(WritePacket(data: data, timeout: -1, completion: .waiter(waiter)))
    }

    func startTLS(_ settings: TLSSettings<some TLSRole.Side>, for waiter: any OperationWaiter<HandshakeNews>) {
        do throws(AsyncSocketError) {
            try TLSRequest.post(settings.values, to: connection, waiter: waiter)
        } catch {
            waiter.complete(.failure(error))
        }
    }

    func cancel(_ waiter: any AnyObject & Sendable) {
        connection?.post(.cancel(waiter))
    }

    /// Waits until all earlier requests are processed, even after the end of the connection.
    func settle() async {
        await withCheckedContinuation { continuation in
            perform { _ in continuation.resume() }
        }
    }
}
