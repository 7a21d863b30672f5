package import Logging
package import SocketBuffers

/// The logger of event loops, and of all sockets that have none of their own; tests replace it.
package let socketLog = Locked(SharedLogger(Logger(label: "AsyncSockets")))

/// A logger that is asked for its level without a copy: its handler may be a value of any size.
package final class SharedLogger: Sendable {
    package let logger: Logger

    package init(_ logger: Logger) {
        self.logger = logger
    }
}
