package import Logging
package import SocketBuffers

/// The logger of all sockets; tests put one of their own here.
package let socketLog = Locked(Logger(label: "AsyncSockets"))

/// Where the sockets write what nobody was there to be told.
var socketLogger: Logger { socketLog.withLock { $0 } }
