internal import AsyncSockets
internal import Dispatch
internal import Foundation
internal import SocketBuffers
internal import SocketTestSupport

/// Counts the threads used by a thousand busy sockets that share a delegate queue.
enum ThreadProbe {
    private static let socketCount = 1_000

    /// Echoes on the loops, and counts the replies on the delegate queue.
    private final class Party: AsyncSocketDelegate, Sendable {
        let mailbox = Mailbox<Void>()
        private let children = Locked<[AsyncSocket]>([])

        func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
            children.withLock { $0.append(newSocket) }
            newSocket.readData(toLength: 4, withTimeout: .patient, tag: Tag.question)
        }

        func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
            guard tag == Tag.question else { return mailbox.put(()) }
            socket.write(data, withTimeout: .patient, tag: 0)
        }
    }

    private enum Tag {
        static let question = 1
        static let answer = 2
    }

    static func run() throws {
        let party = Party()
        let listener = AsyncSocket(inlineDelegate: party)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let queue = DispatchQueue(label: "delegate")
        let sockets = (0..<socketCount).map { _ in AsyncSocket(delegate: party, delegateQueue: queue) }
        for socket in sockets {
            try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort, withTimeout: .patient)
            socket.write(Data("ping".utf8), withTimeout: .patient, tag: 0)
            socket.readData(toLength: 4, withTimeout: .patient, tag: Tag.answer)
        }
        var mostThreads = 0
        for _ in sockets {
            try party.mailbox.next()
            mostThreads = max(mostThreads, try threadCount())
        }
        let limit = ProcessInfo.processInfo.processorCount + 6
        guard mostThreads <= limit else { throw ProbeFailure(description: "\(mostThreads) threads, more than \(limit)") }
        print("\(mostThreads) threads at most, of \(limit)")
    }

    private static func threadCount() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").count
    }
}
