package import Logging
package import SocketBuffers
internal import SocketCore
internal import Synchronization

/// The logger of all sockets that have none of their own; tests replace it.
package let socketLog = Locked(Logger(label: "AsyncSockets"))

/// How a connection appears in the log.
struct ConnectionLog {
    private static let count = Atomic<UInt64>(0)
    /// The number of the connection in this process.
    let number = Self.count.wrappingAdd(1, ordering: .relaxed).newValue
    let role: ConnectionRole

    init(as role: ConnectionRole) {
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
