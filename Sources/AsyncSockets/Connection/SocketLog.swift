package import Logging
package import SocketBuffers
internal import SocketCore

/// The logger of all sockets that have none of their own; tests put one of theirs here.
package let socketLog = Locked(Logger(label: "AsyncSockets"))

extension StreamConnection {
    /// Which side of the connection this socket is.
    enum Role: String {
        case client
        /// Accepted by a listener.
        case server
        /// Made by other code, and adopted.
        case adopted
    }

    /// Inside the turn: says what has happened to the connection, at the level `debug`. Never what was read
    /// or written.
    func log(_ message: String, _ details: @autoclosure () -> [String: String] = [:]) {
        let logger = configuration.logger ?? socketLog.withLock { $0 }
        guard logger.logLevel <= .debug else { return }
        var metadata = details().mapValues { Logger.MetadataValue.string($0) }
        metadata["connection"] = "\(number)"
        metadata["role"] = "\(role.rawValue)"
        if let peer = facts.withLock({ $0.remoteAddress }) { metadata["peer"] = "\(peer)" }
        logger.debug("\(message)", metadata: metadata)
    }
}
