internal import AsyncSockets
internal import Synchronization

/// A store that receives the sessions that a server offers, and never provides one.
final class SessionCollector: TLSSessionStore {
    private struct State {
        var latest: TLSResumableSession?
        var arrivals: AsyncStream<Void>.Continuation?
    }

    private let state = Mutex(State())

    /// The latest session that the server has offered.
    var latest: TLSResumableSession? { state.withLock { $0.latest } }

    func store(_ session: TLSResumableSession, for key: TLSSessionStoreKey) {
        state.withLock { state in
            state.latest = session
            return state.arrivals
        }?.yield()
    }

    func take(for key: TLSSessionStoreKey) -> TLSResumableSession? { nil }

    /// What arrives from a server after the handshake.
    enum Arrival: Sendable {
        case session
        case data
        case end
        case failure(any Error)
        /// Nothing arrived within the time limit.
        case nothing
    }

    /// Waits for the next data or the end of the connection, or for the first session. A session that has
    /// already arrived is returned immediately.
    ///
    /// In TLS 1.3, sessions arrive after the handshake and are processed by a read.
    func arrival(on socket: AsyncSocket, within timeout: Duration) async -> Arrival {
        let (arrivals, continuation) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
        let hasSession = state.withLock { state in
            state.arrivals = continuation
            return state.latest != nil
        }
        if hasSession { return .session }
        let first = await withTaskGroup(of: Arrival.self) { group in
            group.addTask { await arrivals.first { _ in true } == nil ? .nothing : .session }
            group.addTask { await Self.read(from: socket, within: timeout) }
            defer { group.cancelAll() }
            return await group.next() ?? .nothing
        }
        return latest == nil ? first : .session
    }

    private static func read(from socket: AsyncSocket, within timeout: Duration) async -> Arrival {
        do {
            return try await socket.read(timeout: timeout) == nil ? .end : .data
        } catch let error as AsyncSocketError where error.code == .readTimeout {
            return .nothing
        } catch {
            return .failure(error)
        }
    }

    /// Returns the session that the server offers within `timeout`, or `nil`. The server may send data, such
    /// as a greeting, before the session.
    func session(on socket: AsyncSocket, within timeout: Duration) async -> TLSResumableSession? {
        let end = ContinuousClock.now + timeout
        while case .data = await arrival(on: socket, within: max(.zero, end - ContinuousClock.now)) {}
        return latest
    }
}
