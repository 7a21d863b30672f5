package import Logging
package import SocketBuffers

/// The logger of event loops, and of all sockets that have none of their own; tests replace it.
package let socketLog = Locked(Logger(label: "AsyncSockets"))
