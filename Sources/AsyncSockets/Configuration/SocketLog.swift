package import Logging
package import SocketBuffers
internal import SocketCore
internal import Synchronization

/// The logger of all sockets that have none of their own; tests replace it.
package let socketLog = Locked(Logger(label: "AsyncSockets"))

/// How a connection appears in the log.
struct ConnectionLog {
    /// Which side of the connection this socket is.
    enum Role: String {
        case client
        /// Accepted by a listener.
        case server
        /// Made by other code, and adopted.
        case adopted
    }

    private static let count = Atomic<UInt64>(0)
    /// The number of the connection in this process.
    private let number = Self.count.wrappingAdd(1, ordering: .relaxed).newValue
    private let role: Role

    init(as role: Role) {
        self.role = role
    }

    /// False when nothing would be written.
    static func isWritten(by configuration: SocketConfiguration.Shared) -> Bool {
        (configuration.value.logger?.logLevel ?? socketLog.withLock { $0.logLevel }) <= .debug
    }

    func write(_ message: String, _ details: [String: String], peer: SocketAddress?, _ logger: Logger?) {
        let logger = logger ?? socketLog.withLock { $0 }
        var metadata = details.mapValues { Logger.MetadataValue.string($0) }
        metadata["connection"] = "\(number)"
        metadata["role"] = "\(role.rawValue)"
        if let peer { metadata["peer"] = "\(peer)" }
        logger.debug("\(message)", metadata: metadata)
    }
}
