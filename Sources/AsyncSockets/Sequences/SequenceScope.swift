internal import SocketBuffers
internal import SocketCore

/// The scope of a sequence: one connection of a socket.
struct SequenceScope {
    let socket: AsyncSocket
    private let connection: StreamConnection?
    private let idle: IdleGuard?

    init(_ socket: AsyncSocket, _ idleTimeout: Duration?) {
        self.socket = socket
        connection = socket.connection
        let operations = connection.map { TaskOperations(connection: $0) }
        idle = idleTimeout.flatMap { operations?.endWhenIdle($0) }.map { IdleGuard($0) }
    }

    /// Returns the connection to read from.
    func openConnection() throws(AsyncSocketError) -> TaskOperations {
        guard let connection else { throw AsyncSocket.notInUse(.read) }
        return TaskOperations(connection: connection)
    }

    /// Returns the error for the sequence to throw, or `nil` if the sequence simply finishes: after an
    /// orderly close, or if this side closed the connection and the socket has since been reused.
    func failure(_ error: any Error) -> (any Error)? {
        guard let error = error as? AsyncSocketError else { return error }
        let isOver = error.code == .closed && socket.connection !== connection
        return error.isOrderlyEnd || isOver ? nil : error
    }
}
