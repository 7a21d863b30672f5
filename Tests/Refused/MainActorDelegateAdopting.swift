// error: main actor-isolated conformance of 'Session' to 'AsyncSocketDelegate' cannot satisfy

import AsyncSockets
import Dispatch

@MainActor final class Session {
    var count = 0
}

extension Session: @MainActor AsyncSocketDelegate {
    func socketDidSecure(_ socket: AsyncSocket) { count += 1 }
}

@MainActor func adopt(_ descriptor: Int32, for session: Session) throws -> AsyncSocket {
    try AsyncSocket(adopting: descriptor, delegate: session, delegateQueue: DispatchQueue(label: "elsewhere"))
}
