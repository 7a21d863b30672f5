// error: main actor-isolated conformance of 'Session' to 'AsyncSocketDelegate' cannot satisfy

import AsyncSockets
import Dispatch

/// Its callbacks would come on another thread than the main actor's.
@MainActor final class Session {
    var count = 0
}

extension Session: @MainActor AsyncSocketDelegate {
    func socketDidSecure(_ socket: AsyncSocket) { count += 1 }
}

@MainActor func begin(with session: Session) -> AsyncSocket {
    AsyncSocket(delegate: session, delegateQueue: DispatchQueue(label: "elsewhere"))
}
