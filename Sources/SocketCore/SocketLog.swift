package import Logging
package import SocketBuffers

/// The logger of event loops and of sockets without their own logger. Tests replace it.
package let socketLog = Locked(Logger(label: "AsyncSockets"))
