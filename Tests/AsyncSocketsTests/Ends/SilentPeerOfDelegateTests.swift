import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The delegate version of `SilentPeerTests`: an operation behind another one, and a peer that neither sends
/// nor reads. The connection closes when the running operation times out, and the error names that operation.
@Suite(.timeLimit(.patient)) struct SilentPeerOfDelegateTests {
    enum Operation: CaseIterable, Sendable {
        case nothing, connect, read, buffered, length, delimiter, toEnd, write, file, beginTLS, request
        case disconnect, afterReading, afterWriting, afterBoth, closeWriteStream

        /// The operations that wait for the peer.
        static let waiting = allCases.prefix { $0 != .disconnect }

        /// The queues that it takes a place in, or waits for.
        var queues: Set<AsyncSocketError.Operation> {
            switch self {
            case .nothing, .request, .disconnect: []
            case .read, .buffered, .length, .delimiter, .toEnd, .afterReading: [.read]
            case .write, .file, .afterWriting, .closeWriteStream: [.write]
            case .connect, .beginTLS, .afterBoth: [.read, .write]
            }
        }

        var isEnd: Bool { Self.allCases.drop { $0 != .disconnect }.contains(self) }

        /// Its name in an error. `nil` if it does not fail.
        var name: AsyncSocketError.Operation? {
            switch self {
            case .beginTLS: .startTLS
            case .request: .requestClientCertificate
            case .connect: .connect
            default: queues.first
            }
        }

        var code: AsyncSocketError.Code {
            switch name {
            case .read: .readTimeout
            case .write: .writeTimeout
            case .connect: .connectTimeout
            default: .handshakeTimeout
            }
        }
    }

    /// A delegate that records the results of operations and which of them timed out.
    private final class Notes: AsyncSocketDelegate, Sendable {
        struct State {
            var isConnected = false
            var isSecure = false
            var refusal: AsyncSocketError?
            var late: [Int] = []
            var ends: [AsyncSocketError?] = []
        }
        private let state = Locked(State())
        var now: State { state.withLock { $0 } }

        /// Resets the state for another connection of the same socket.
        func forget() { state.withLock { $0 = State() } }

        func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) {
            state.withLock { $0.isConnected = true }
        }
        func socketDidSecure(_ socket: AsyncSocket) { state.withLock { $0.isSecure = true } }
        func socket(_ socket: AsyncSocket, didReceiveClientCertificate result: Result<TLSSession, AsyncSocketError>) {
            if case .failure(let error) = result { state.withLock { $0.refusal = error } }
        }
        func socket(
            _ socket: AsyncSocket, shouldTimeoutReadWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
        ) -> TimeInterval { note(late: tag) }
        func socket(
            _ socket: AsyncSocket, shouldTimeoutWriteWithTag tag: Int, elapsed: TimeInterval, bytesDone length: Int
        ) -> TimeInterval { note(late: tag) }
        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
            state.withLock { $0.ends.append(error) }
        }
        private func note(late tag: Int) -> TimeInterval {
            state.withLock { $0.late.append(tag) }
            return 0
        }
    }

    /// More than the kernel buffers of both sides hold.
    private static let much = Data(count: 16 << 20)

    private final class Place {
        let socket = AsyncSocket()
        let notes = Notes()
        let queue = DispatchQueue(label: "delegate")
        let file: String
        var peer: ScriptedPeer?
        /// The timeout in a server's settings, for a certificate request.
        var requestLimit = TimeInterval.patient

        init(file: String, hasQueue: Bool) {
            self.file = file
            if hasQueue { socket.setDelegate(notes, delegateQueue: queue) } else { socket.setInlineDelegate(notes) }
        }
    }

    /// Connects. With TLS, the socket is the server, which can request a certificate within `limit` seconds.
    /// Returns false if the handshake took longer.
    private func connect(_ place: Place, isSecure: Bool, limit: Double) async throws -> Bool {
        var (client, server) = try TestCertificates.mutual(.certificatesOnRequest())
        client.allowsPostHandshakeAuthentication = true
        server.handshakeTimeout = .seconds(limit)
        let peer = try ScriptedPeer.listening((isSecure ? [.startTLS(client)] : []) + [.wait(for: try TestSignal())])
        place.peer = peer
        place.requestLimit = limit
        place.notes.forget()
        try place.socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        if isSecure { try place.socket.beginTLS(settings: server) }
        try await eventually("it is there") {
            !place.notes.now.ends.isEmpty || place.notes.now.isConnected && place.notes.now.isSecure == isSecure
        }
        return place.notes.now.ends.isEmpty
    }

    private func perform(_ operation: Operation, _ place: Place, limit: Double, tag: Int) throws {
        let socket = place.socket
        switch operation {
        case .nothing: break
        case .connect: try socket.connect(toHost: "127.0.0.1", onPort: #require(place.peer?.port), withTimeout: limit)
        case .read: socket.readData(withTimeout: limit, tag: tag)
        case .buffered: socket.readData(withTimeout: limit, buffer: ReadBuffer(), tag: tag)
        case .length: socket.readData(toLength: 3, withTimeout: limit, tag: tag)
        case .delimiter: socket.readData(to: .lineEnd, withTimeout: limit, tag: tag)
        case .toEnd: socket.readDataToEnd(withTimeout: limit, tag: tag)
        case .write: socket.write(Self.much, withTimeout: limit, tag: tag)
        case .file: try socket.write(contentsOfFile: place.file, withTimeout: limit, tag: tag)
        case .beginTLS:
            var settings = try TestCertificates.client()
            settings.handshakeTimeout = .seconds(limit)
            try socket.beginTLS(settings: settings)
        case .request: try socket.beginClientCertificateRequest()
        case .disconnect: socket.disconnect()
        case .afterReading: socket.disconnectAfterReading()
        case .afterWriting: socket.disconnectAfterWriting()
        case .afterBoth: socket.disconnectAfterReadingAndWriting()
        case .closeWriteStream: socket.closeWriteStream()
        }
    }

    /// The expected result of the second operation.
    enum Fate: Equatable, Sendable {
        /// The call throws, or the delegate receives the reason, without an effect.
        case refused(String)
        /// The connection closes cleanly and immediately.
        case ended
        /// One of the operations times out: the first, the second, or another one, which would be noticed
        /// last. The second has no timer while it waits behind the first.
        case late(Int)
    }

    private static func fates(_ first: Operation, _ second: Operation, isSecure: Bool) -> [Fate] {
        let waits = !first.queues.isDisjoint(with: second.queues)
        switch second {
        case .connect: return [.refused("disconnect it first")]
        case .beginTLS where isSecure || first == .beginTLS: return [.refused("already been called on this connection")]
        case .request where !isSecure: return [.refused("not secure")]
        case .request where first == .request: return [.refused("the previous request is still pending")]
        case .disconnect: return [.ended]
        case .afterReading, .afterWriting, .afterBoth:
            guard waits else { return [.ended] }
        case .closeWriteStream: break
        default: if !waits { return [.late(2)] }
        }
        return (first == .nothing || first == .request ? [] : [.late(1)]) + (first.queues.count < 2 ? [.late(3)] : [])
    }

    /// Performs one operation behind another one, and checks the end of the connection.
    private func check(_ first: Operation, _ second: Operation, _ fate: Fate, isSecure: Bool, _ place: Place) async throws {
        let other: Operation = first.queues == [.read] ? .write : .read
        let limits = [fate == .late(1) ? 0.1 : first == .connect || first == .beginTLS ? .patient : -1, 0.01, 0.12]
        for requestLimit in second == .request && fate == .late(2) ? [0.1, 1, 10, 100] : [.patient] {
            if first == .connect {
                place.peer = try ScriptedPeer.listening([.wait(for: try TestSignal())])
                place.socket.proxy = .socks5(host: "127.0.0.1", port: place.peer?.port ?? 0)
            } else if try await !connect(place, isSecure: isSecure, limit: requestLimit) {
                continue
            }
            break
        }
        try perform(first, place, limit: limits[0], tag: 1)
        if fate == .late(3) { try perform(other, place, limit: limits[2], tag: 3) }
        let text = Comment("\(second) behind \(first), \(fate)")
        do {
            try perform(second, place, limit: limits[1], tag: 2)
        } catch let error as AsyncSocketError {
            guard case .refused(let reason) = fate, error.code == .badConfiguration, error.message.contains(reason) else {
                throw error
            }
            place.socket.disconnect()
        }
        if case .refused(let reason) = fate, second == .request {
            try await eventually("it is refused: \(text)") { place.notes.now.refusal != nil }
            #expect(place.notes.now.refusal?.message.contains(reason) == true, text)
            place.socket.disconnect()
        }
        try await eventually("it ends: \(text)") { !place.notes.now.ends.isEmpty }
        let (end, late) = (place.notes.now.ends[0], place.notes.now.late)
        place.peer?.stop()
        guard case .late(let number) = fate else { return #expect(end == nil && late.isEmpty, text) }
        let guilty = [first, second, other][number - 1]
        #expect(end?.code == guilty.code && end?.operation == guilty.name && end?.fault == .peer, text)
        let seconds = guilty == .request ? place.requestLimit : limits[number - 1]
        #expect(end?.message.contains("within \(AsyncSocketError.text(ofSeconds: seconds))") == true, text)
        #expect(late == (guilty.name == .read || guilty.name == .write ? [number] : []), text)
    }

    @Test(arguments: Operation.waiting, [false, true])
    func everyOperationEndsBehindAnother(_ first: Operation, isSecure: Bool) async throws {
        guard !isSecure || first != .connect && first != .beginTLS, isSecure || first != .request else { return }
        let folder = try TemporaryFolder()
        try Self.much.write(to: folder.url("file"))
        var count = 0
        for second in Operation.allCases where second != .nothing {
            for fate in Self.fates(first, second, isSecure: isSecure) {
                count += 1
                let place = Place(file: folder.path("file"), hasQueue: count % 2 == 0)
                try await check(first, second, fate, isSecure: isSecure, place)
            }
        }
        #expect(count >= 15)
    }

    /// The connection stays open after a read times out, and the next read has its own timeout.
    @Test(arguments: [false, true]) func eachReadBehindALateOneHasItsTime(isSecure: Bool) async throws {
        let (socket, peer) = try await connectedSocket([.wait(for: try TestSignal())], isSecure: isSecure)
        let recorder = Recorder()
        socket.setInlineDelegate(recorder)
        socket.keepsConnectionOnReadTimeout = true
        let limits = [0.01, 0.03, 0.02]
        for (tag, limit) in limits.enumerated() { socket.readData(toLength: 1, withTimeout: limit, tag: tag) }
        let start = ContinuousClock.now
        for (tag, limit) in limits.enumerated() {
            let told = try await recorder.notRead()
            #expect(told.tag == tag && told.error.message == "the read did not complete within \(limit) seconds")
        }
        #expect(start.duration(to: .now) >= .seconds(0.06))
        peer.stop()
    }
}
