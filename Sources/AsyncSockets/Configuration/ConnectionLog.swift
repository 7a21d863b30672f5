internal import Logging
internal import SocketBuffers
internal import SocketCore
internal import Synchronization

/// The identity of a connection in the log.
struct ConnectionLog {
    private static let count = Atomic<UInt64>(0)
    /// The number of the connection in this process.
    let number = Self.count.wrappingAdd(1, ordering: .relaxed).newValue
    let role: ConnectionRole

    init(as role: ConnectionRole) {
        self.role = role
    }

    /// Whether messages at the level `debug` are logged.
    static func isWritten(by configuration: SocketConfiguration.Shared) -> Bool {
        // Loggers are not copied, because a copy retains several references.
        if let level = configuration.value.logger?.logLevel { return level <= .debug }
        return socketLog.withLock { $0.logLevel } <= .debug
    }

    func write(
        _ message: String, _ details: [String: String], peer: SocketEndpoint?, _ logger: Logger?
    ) {
        let logger = logger ?? socketLog.withLock { $0 }
        logger.debug(
            "\(message)", metadata: name(peer: peer).merging(details.mapValues { .string($0) }) { $1 })
    }

    func observed(_ peer: SocketEndpoint?) -> ObservedConnection {
        ObservedConnection(number: number, role: role, peer: peer)
    }

    func name(peer: SocketEndpoint?) -> Logger.Metadata {
        var name: Logger.Metadata = ["connection": "\(number)", "role": "\(role.rawValue)"]
        if let peer { name["peer"] = "\(peer)" }
        return name
    }
}
