internal import SocketBuffers
internal import SocketCore

/// What a sequence belongs to: one connection of a socket, and one side of its upgrade to TLS.
struct SequenceScope {
    let socket: AsyncSocket
    private let connection: StreamConnection?
    private let isUpgraded: Bool
    private let idle: IdleGuard?

    init(_ socket: AsyncSocket, _ idleTimeout: Duration?) {
        self.socket = socket
        connection = socket.connection
        isUpgraded = connection?.isUpgradeClaimed ?? false
        let connection = connection
        idle = idleTimeout.flatMap { connection?.endWhenIdle($0) }.map { IdleGuard($0) }
    }

    /// The connection to read from; nil when the sequence has ended.
    func openConnection() throws(AsyncSocketError) -> StreamConnection? {
        guard let connection else { throw AsyncSocket.notInUse("read") }
        return connection.isUpgradeClaimed == isUpgraded ? connection : nil
    }

    /// The error of the sequence; nil when it ends: in good order, or because this side has closed its
    /// connection and the socket has another one by now.
    func failure(_ error: any Error) -> (any Error)? {
        guard let error = error as? AsyncSocketError else { return error }
        let isOver = error.code == .closed && socket.connection !== connection
        return error.isOrderlyEnd || isOver ? nil : error
    }
}
