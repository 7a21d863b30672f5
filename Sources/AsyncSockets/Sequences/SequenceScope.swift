internal import SocketBuffers
internal import SocketCore

/// The scope of a sequence: one connection of a socket, and one side of its upgrade to TLS.
struct SequenceScope {
    let socket: AsyncSocket
    private let connection: StreamConnection?
    private let isUpgraded: Bool
    private let idle: IdleGuard?

    init(_ socket: AsyncSocket, _ idleTimeout: Duration?) {
        self.socket = socket
        connection = socket.connection
        isUpgraded = Self.isUpgraded(connection)
        let operations = connection.map { TaskOperations(connection: $0) }
        idle = idleTimeout.flatMap { operations?.endWhenIdle($0) }.map { IdleGuard($0) }
    }

    /// The connection to read from; nil when the sequence has ended.
    func openConnection() throws(AsyncSocketError) -> TaskOperations? {
        guard let connection else { throw AsyncSocket.notInUse("read") }
        return Self.isUpgraded(connection) == isUpgraded ? TaskOperations(connection: connection) : nil
    }

    /// True once `startTLS` was called.
    private static func isUpgraded(_ connection: StreamConnection?) -> Bool {
        connection?.record.withLock { $0.claims.isUpgradeClaimed } ?? false
    }

    /// The error of the sequence; nil when it ends: in good order, or because this side has closed its
    /// connection and the socket has another one by now.
    func failure(_ error: any Error) -> (any Error)? {
        guard let error = error as? AsyncSocketError else { return error }
        let isOver = error.code == .closed && socket.connection !== connection
        return error.isOrderlyEnd || isOver ? nil : error
    }
}
