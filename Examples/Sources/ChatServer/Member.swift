import AsyncSockets
import Foundation

/// A member of the chat.
@MainActor
final class Member {
    let socket: AsyncSocket
    let name: String
    private var isBehind = false
    private var omittedLineCount = 0

    init(_ socket: AsyncSocket, name: String) {
        self.socket = socket
        self.name = name
    }

    /// Sends a line. If too much data is already queued, drops the line instead, so that a slow member does
    /// not use up memory.
    func tell(_ line: String) {
        guard !isBehind else {
            omittedLineCount += 1
            return
        }
        socket.write(Data("\(line)\n".utf8), withTimeout: 30)
    }

    /// The high-water mark was reached.
    func fallBehind() {
        isBehind = true
    }

    /// The low-water mark was reached.
    func catchUp() {
        isBehind = false
        if omittedLineCount > 0 { tell("*** \(omittedLineCount) lines were omitted") }
        omittedLineCount = 0
    }
}
