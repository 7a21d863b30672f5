import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct DatagramEndTests {
    @Test func closingAUDPSocketIsReportedOnceAndLast() async throws {
        let pair = try Pair()
        pair.send("x", tag: 1)
        try await pair.atFar.wait(for: "received x")
        pair.far.close()
        pair.far.close()
        #expect(pair.far.isClosed())
        try await pair.atFar.wait(for: "closed")
        pair.far.delegateQueue()?.sync {}
        #expect(pair.atFar.lines == ["received x", "closed"])
    }

    @Test func closeAfterSendingSendsQueuedDatagrams() async throws {
        let pair = try Pair()
        for tag in 1...100 { pair.send("\(tag)", tag: tag) }
        pair.near.closeAfterSending()
        try await pair.atNear.wait(for: "closed")
        #expect(pair.atNear.lines == (1...100).map { "sent \($0)" } + ["closed"])
        try await pair.atFar.wait(for: "received 100")
    }

    @Test func aReusedUDPSocketKeepsItsSettingsAndFilters() async throws {
        let pair = try Pair()
        let queue = DispatchQueue(label: "filters")
        DatagramFilterSpellings.install(on: pair.far, queue)
        pair.far.setIPv6Enabled(false)
        pair.far.setPreferIPv4()
        for round in 1...3 {
            pair.far.close()
            try pair.far.bind(toPort: 0)
            try pair.far.beginReceiving()
            #expect(pair.far.isIPv4() && !pair.far.isIPv6() && pair.far.isIPv4Preferred())
            pair.send("- round \(round)")
            pair.send("round \(round)")
            try await pair.atFar.wait(for: "received round \(round) with mark")
        }
        try await eventually("all ends are told") { pair.atFar.lines.filter { $0 == "closed" }.count == 3 }
        #expect(!pair.atFar.lines.contains { $0.hasPrefix("received -") })
    }

    @Test func thePortIsFreeWhenCloseReturns() async throws {
        let pair = try Pair()
        let port = pair.far.localPort()
        // The loop is busy with the socket being closed.
        for round in 1...100 {
            for tag in 1...20 {
                pair.near.send(Data("\(round)".utf8), toHost: "127.0.0.1", port: port, withTimeout: -1, tag: tag)
            }
            let (number, file) = try openFile(of: pair.far)
            pair.far.close()
            // The descriptor number may already belong to another file.
            #expect(Self.file(of: number) != file)
            // A program that is being started at this moment has a copy of each descriptor until exec.
            try await eventually("the port is free") {
                do {
                    try pair.far.bind(toPort: port, interface: "127.0.0.1")
                    return true
                } catch let error as NSError where error.code == Int(EADDRINUSE) { return false }
            }
            try pair.far.beginReceiving()
        }
        try await eventually("all ends are told") { pair.atFar.lines.filter { $0 == "closed" }.count == 100 }
    }

    private func openFile(of socket: GCDAsyncUdpSocket) throws -> (number: Int32, file: ino_t) {
        var number: Int32 = -1
        socket.perform { number = socket.socketFD() }
        return (number, try #require(Self.file(of: number)))
    }

    private static func file(of number: Int32) -> ino_t? {
        var facts = stat()
        return fstat(number, &facts) == 0 ? facts.st_ino : nil
    }

    @Test func closingDropsQueuedSendsWithoutACallback() async throws {
        let pair = try Pair()
        // The filter's queue is blocked, so that the datagrams wait.
        let (queue, gate) = (DispatchQueue(label: "filter"), DispatchSemaphore(value: 0))
        queue.async { gate.wait() }
        pair.near.setSendFilter({ _, _, _ in true }, with: queue)
        for tag in 1...5 { pair.send("late", tag: tag) }
        pair.near.close()
        try await pair.atNear.wait(for: "closed")
        gate.signal()
        queue.sync {}
        pair.near.delegateQueue()?.sync {}
        #expect(pair.atNear.lines == ["closed"])
    }

    @Test func aSendBlockedByAFilterTimesOut() async throws {
        let pair = try Pair()
        let (queue, gate) = (DispatchQueue(label: "filter"), DispatchSemaphore(value: 0))
        queue.async { gate.wait() }
        defer { gate.signal() }
        pair.near.setSendFilter({ _, _, _ in true }, with: queue)
        pair.near.send(Data("x".utf8), toHost: "127.0.0.1", port: pair.far.localPort(), withTimeout: 0.01, tag: 1)
        try await pair.atNear.wait(for: "not sent 1")
        #expect((pair.atNear.error as? GCDAsyncUdpSocketError)?.code == .sendTimeoutError)
        #expect(pair.atNear.error?.localizedDescription == "Send operation timed out")
    }

    @Test func aReleasedUDPSocketClosesWithoutACallback() async throws {
        let diary = DatagramDiary()
        var socket: GCDAsyncUdpSocket? = GCDAsyncUdpSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
        try socket?.bind(toPort: 0, interface: "127.0.0.1")
        let port = try #require(socket?.localPort())
        socket = nil
        let other = GCDAsyncUdpSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
        try await eventually("the port is free") {
            do { try other.bind(toPort: port, interface: "127.0.0.1") } catch { return false }
            return true
        }
        #expect(diary.lines.isEmpty)
    }
}
