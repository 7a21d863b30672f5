internal import SocketBuffers
internal import SocketCore

/// A listener that can pass its sockets to another process.
protocol HandoverListener: ServingListener {
    var socketCount: Int { get }

    /// The sockets that may have a file. Empty for UDP.
    var acceptors: [Acceptor] { get }

    /// Appends duplicates of the descriptors, which the caller must close.
    func duplicateSockets(into numbers: inout [CInt]) throws(SystemError)

    /// The secrets of a DTLS server's cookies. `nil` for other servers.
    var cookieSecrets: [UInt8]? { get }

    /// Continues with the secrets of the old process. Returns `false` if they cannot be read.
    func adoptCookieSecrets(_ secrets: [UInt8]) -> Bool

    /// Prepares the peers of a UDP listener, and stops receiving from its sockets, because the new process is
    /// about to receive from them.
    nonisolated(nonsending) func leaveSockets() async

    /// Receives from the sockets again, because the new process has failed.
    nonisolated(nonsending) func resumeSockets() async
}

extension SocketListener: HandoverListener {
    var socketCount: Int { acceptors.count }

    var acceptors: [Acceptor] { listener.acceptors }

    func duplicateSockets(into numbers: inout [CInt]) throws(SystemError) {
        for acceptor in acceptors {
            if let number = try acceptor.duplicate() { numbers.append(number) }
        }
    }

    var cookieSecrets: [UInt8]? { nil }

    func adoptCookieSecrets(_ secrets: [UInt8]) -> Bool { true }

    nonisolated(nonsending) func leaveSockets() async {}

    nonisolated(nonsending) func resumeSockets() async {}
}
