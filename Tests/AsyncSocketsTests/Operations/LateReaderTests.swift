import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import Glibc
import SocketBuffers
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

/// A program that reads late receives all data from before the end, and then the true cause of the end.
@Suite(.timeLimit(.patient)) struct LateReaderTests {
    enum Ending: CaseIterable, Sendable {
        case finish, close, closeNotify, reset

        var steps: [ScriptedPeer.Step] {
            switch self {
            case .finish: [.finish]
            case .close: [.close]
            case .closeNotify: [.sendCloseNotify, .close]
            case .reset: [.reset]
            }
        }

        func code(secure: Bool) -> AsyncSocketError.Code {
            switch self {
            case .finish, .close: secure ? .truncated : .closedByPeer
            case .closeNotify: .closedByPeer
            case .reset: .connectionReset
            }
        }
    }

    /// Whether our side is a client or a server, and its TLS version.
    enum Side: CaseIterable, Sendable {
        case plain, client12, client13, server12, server13

        var version: TLSProtocolVersion? {
            switch self {
            case .plain: nil
            case .client12, .server12: .tls12
            case .client13, .server13: .tls13
            }
        }

        var isServer: Bool { self == .server12 || self == .server13 }
    }

    /// `POLLRDHUP`, which glibc declares only under _GNU_SOURCE.
    private static let hangup: Int16 = 0x2000

    /// Waits until the kernel has received the end, and then until the loop has handled all earlier events.
    private func waitForEnd(of socket: AsyncSocket, on loop: SocketEventLoop) async throws {
        let hasEnded = Locked(false)
        try await eventually("the end has arrived") {
            socket.perform { descriptor in
                var question = pollfd(fd: descriptor ?? -1, events: Self.hangup, revents: 0)
                let isThere = descriptor == nil || (poll(&question, 1, 0) == 1)
                if isThere { hasEnded.withLock { $0 = true } }
            }
            return hasEnded.withLock { $0 }
        }
        for _ in 0..<3 { try await passEvents(of: loop) }
    }

    /// Establishes a connection on the loop. By then the loop has handled all earlier events.
    private func passEvents(of loop: SocketEventLoop) async throws {
        let other = try ScriptedPeer.listening([.wait(for: TestSignal())])
        let recorder = Recorder()
        let passer = AsyncSocket(inlineDelegate: recorder)
        passer.stay(on: loop)
        try passer.connect(toHost: "127.0.0.1", onPort: other.port)
        try await recorder.connected()
        other.stop()
    }

    /// Returns a connection whose peer performs `steps` once it is established on both sides.
    private func established(
        _ side: Side, _ steps: [ScriptedPeer.Step], on loop: SocketEventLoop
    ) async throws -> (AsyncSocket, Recorder, keep: [AsyncSocket]) {
        let isThere = try TestSignal()
        defer { isThere.fire() }
        let steps = [.wait(for: isThere)] + steps
        let (client, server) = try (TestCertificates.client(), TestCertificates.server())
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.stay(on: loop)
        guard side.isServer, let version = side.version else {
            let start: [ScriptedPeer.Step] = side.version == nil ? [] : [.startTLS(server)]
            let peer = try ScriptedPeer.listening(start + steps)
            try socket.connect(toHost: "127.0.0.1", onPort: peer.port)
            if let version = side.version { try socket.beginTLS(settings: client.only(version)) }
            try await recorder.connected()
            if side.version != nil { try await recorder.secured() }
            return (socket, recorder, [])
        }
        try socket.accept(onInterface: "127.0.0.1", port: 0)
        _ = try ScriptedPeer.connecting(toPort: socket.localPort, [.startTLS(client.only(version))] + steps)
        let child = try await recorder.accepted()
        let atChild = Recorder()
        child.setInlineDelegate(atChild)
        try child.beginTLS(settings: server)
        try await atChild.secured()
        return (child, atChild, [socket])
    }

    @Test(arguments: Side.allCases, Ending.allCases)
    func whatCameBeforeTheEndCanBeReadLate(_ side: Side, _ ending: Ending) async throws {
        if side == .plain, ending == .closeNotify { return }
        let loop = try SocketEventLoop()
        let sent = [UInt8]("last words".utf8)
        let (socket, recorder, keep) = try await established(side, [.send(sent)] + ending.steps, on: loop)
        try await waitForEnd(of: socket, on: loop)
        socket.readData(toLength: 5, withTimeout: .patient, tag: 1)
        #expect(try await recorder.readText() == "last ")
        socket.readData(toLength: 5, withTimeout: .patient, tag: 2)
        #expect(try await recorder.readText() == "words")
        socket.readData(withTimeout: .patient, tag: 3)
        let error = try await recorder.disconnected()
        #expect(error?.code == ending.code(secure: side.version != nil), "\(String(describing: error))")
        #expect(error?.isOrderlyEnd == (error?.code == .closedByPeer))
        withExtendedLifetime(keep) {}
    }

    /// More than the socket reads ahead, so that the rest stays in the kernel.
    @Test(arguments: Side.allCases)
    func moreThanIsReadAheadCanBeReadLate(_ side: Side) async throws {
        let loop = try SocketEventLoop()
        let sent = [UInt8](pattern(150_000))
        let (socket, recorder, keep) = try await established(side, [.send(sent), .close], on: loop)
        for _ in 0..<10 { try await passEvents(of: loop) }
        socket.readData(toLength: sent.count, withTimeout: .patient, tag: 1)
        #expect(try await recorder.readData() == Data(sent))
        socket.readData(withTimeout: .patient, tag: 2)
        let error = try await recorder.disconnected()
        #expect(error?.code == Ending.close.code(secure: side.version != nil), "\(String(describing: error))")
        withExtendedLifetime(keep) {}
    }

    @Test func moreThanIsReadAheadStaysWhenThePeerResets() async throws {
        let loop = try SocketEventLoop()
        let sent = [UInt8](pattern(100_000))
        let mayReset = try TestSignal()
        let (socket, recorder, _) = try await established(.plain, [.send(sent), .wait(for: mayReset), .reset], on: loop)
        // Data in transit when a reset is sent never arrives.
        let inKernel = Locked(0)
        try await eventually("all of it has arrived") {
            socket.perform { descriptor in
                var count: CInt = 0
                guard let descriptor, ioctl(descriptor, UInt(FIONREAD), &count) == 0 else { return }
                inKernel.withLock { $0 = Int(count) }
            }
            return inKernel.withLock { $0 } == sent.count - 65_536
        }
        mayReset.fire()
        try await waitForEnd(of: socket, on: loop)
        socket.readData(toLength: sent.count, withTimeout: .patient, tag: 1)
        #expect(try await recorder.readData() == Data(sent))
        socket.readData(withTimeout: .patient, tag: 2)
        #expect(try await recorder.disconnected()?.code == .connectionReset)
    }

    // MARK: - To the end

    @Test(arguments: Side.allCases, Ending.allCases)
    func aReadToTheEndIsCompleteWithAnEndInGoodOrder(_ side: Side, _ ending: Ending) async throws {
        if side == .plain, ending == .closeNotify { return }
        let sent = [UInt8](pattern(200_000))
        let mayEnd = try TestSignal()
        let (socket, recorder, keep) = try await established(
            side, [.send(sent), .wait(for: mayEnd)] + ending.steps, on: try SocketEventLoop())
        socket.readDataToEnd(withTimeout: .patient, tag: 4)
        // A reset would discard data in transit.
        try await eventually("all of it has arrived") { socket.readProgress?.bytesDone == sent.count }
        mayEnd.fire()
        let code = ending.code(secure: side.version != nil)
        if code == .closedByPeer {
            #expect(try await recorder.readData() == Data(sent))
        } else {
            let (data, tag, error) = try await recorder.notRead()
            #expect(data == Data(sent) && tag == 4 && error.code == code)
        }
        #expect(try await recorder.disconnected()?.code == code)
        withExtendedLifetime(keep) {}
    }

    @Test(arguments: [(9, false), (10, true), (11, true)])
    func aReadToTheEndIsBounded(limit: Int, fits: Bool) async throws {
        let (socket, recorder, _) = try await established(.plain, [.send("last words"), .finish], on: try SocketEventLoop())
        socket.readDataToEnd(withTimeout: .patient, maxLength: limit)
        if fits { #expect(try await recorder.readText() == "last words") }
        #expect(try await recorder.disconnected()?.code == (fits ? .closedByPeer : .readMaxedOut))
    }

    @Test func withoutASettingAReadToTheEndIsBounded() async throws {
        let sent = [UInt8](repeating: 1, count: 1 << 20 + 1)
        let (socket, recorder, _) = try await established(.plain, [.send(sent), .finish], on: try SocketEventLoop())
        socket.readDataToEnd(withTimeout: .patient)
        #expect(try await recorder.disconnected()?.code == .readMaxedOut)
    }

    @Test func withoutASettingALineIsBounded() async throws {
        let sent = [UInt8](repeating: 1, count: 1 << 20)
        let (socket, recorder, _) = try await established(
            .plain, [.send(sent), .wait(for: TestSignal())], on: try SocketEventLoop())
        socket.readData(to: .lineEnd)
        #expect(try await recorder.disconnected()?.code == .readMaxedOut)
    }

    @Test func whenWritingGoesOnAReadToTheEndIsCompleteToo() async throws {
        let (socket, recorder, _) = try await established(
            .plain, [.send("all"), .finish, .expect("answer")], on: try SocketEventLoop())
        socket.autoDisconnectOnClosedReadStream = false
        socket.readDataToEnd(withTimeout: .patient)
        #expect(try await recorder.readText() == "all")
        try await recorder.readStreamClosed()
        socket.write(Data("answer"), withTimeout: .patient, tag: 1)
        #expect(try await recorder.wrote() == 1)
        socket.disconnect()
    }
}
