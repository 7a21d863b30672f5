// error: main actor-isolated conformance of 'Session' to 'AsyncSocketDelegate' cannot satisfy

import AsyncSockets
import Dispatch

@MainActor final class Session {
    var count = 0
}

extension Session: @MainActor AsyncSocketDelegate {
    func socketDidSecure(_ socket: AsyncSocket) { count += 1 }
}

@MainActor func move(_ socket: AsyncSocket, to session: Session) {
    socket.setDelegate(session, delegateQueue: DispatchQueue(label: "elsewhere"))
}
