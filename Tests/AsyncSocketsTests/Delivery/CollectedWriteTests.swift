import AsyncSocketsTesting
import Foundation
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Replies to messages that arrived together are sent with one `send`. With TCP_NODELAY, each small `send` is
/// a segment, and the peer's kernel counts the segments.
@Suite(.timeLimit(.patient)) struct CollectedWriteTests {
    enum Style: CaseIterable, Sendable {
        case task, inline, socketQueue
    }

    /// A server that echoes each line.
    private struct Server {
        let socket: AsyncSocket
        private let style: Style
        private let recorder = Recorder { socket, told in
            guard case .read(let line, _) = told else { return }
            socket.write(line, withTimeout: .patient, tag: 0)
            socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        }

        init(_ style: Style, adopting peer: RawSocket) throws {
            self.style = style
            switch style {
            case .task: socket = try AsyncSocket(adopting: peer.duplicate())
            case .inline: socket = try AsyncSocket(adopting: peer.duplicate(), inlineDelegate: recorder)
            case .socketQueue:
                let queue = DispatchQueue(label: "socket")
                socket = try AsyncSocket(adopting: peer.duplicate(), inlineDelegate: recorder, socketQueue: queue)
            }
        }

        func secure() async throws {
            let settings = try TestCertificates.server()
            if style == .task {
                try await socket.startTLS(settings: settings)
            } else {
                try socket.beginTLS(settings: settings)
                try await recorder.secured()
            }
        }

        func begin() {
            guard style == .task else { return socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0) }
            Task(executorPreference: socket.executor) { [socket] in
                for try await line in socket.lines { try await socket.writeLine(line) }
            }
        }
    }

    private func lines(_ count: Int) -> Data {
        Data((0..<count).map { "command \($0)\r\n" }.joined())
    }

    private func connect(_ style: Style, isSecure: Bool) async throws -> (AsyncSocket, Server) {
        let listener = try RawSocket.listening()
        let client = AsyncSocket()
        try await client.connect(to: "127.0.0.1", port: listener.localPort)
        let server = try Server(style, adopting: listener.accepted())
        if isSecure {
            async let atServer: Void = server.secure()
            try await client.startTLS(settings: TestCertificates.client())
            try await atServer
        }
        return (client, server)
    }

    /// Returns the number of segments with the replies to `count` lines that arrive together, as the minimum
    /// over several rounds.
    ///
    /// A task yields after a millisecond, and sends the collected data before. On a busy machine, this
    /// happens early.
    private func countSegments(toAnswer count: Int, _ style: Style, isSecure: Bool) async throws -> Int {
        let (client, server) = try await connect(style, isSecure: isSecure)
        server.begin()
        let text = lines(count)
        var fewest = Int.max
        for _ in 0..<20 where fewest > 1 {
            let before = try await client.receivedSegmentCount
            try await client.write(text)
            #expect(try await client.read(exactly: text.count) == text)
            fewest = try await min(fewest, client.receivedSegmentCount - before)
        }
        return fewest
    }

    @Test(arguments: Style.allCases, [false, true])
    func answersToLinesThatCameTogetherLeaveTogether(style: Style, isSecure: Bool) async throws {
        // With a sanitizer, a task reaches its millisecond before the last line.
        #expect(try await countSegments(toAnswer: 16, style, isSecure: isSecure) <= (style == .task ? 8 : 1))
    }

    /// If the request arrives together with the client's last handshake message, the server sends two
    /// segments: its flight, and the tickets with the reply. In a round in which the request arrives later,
    /// it sends three.
    @Test(.unmodifiedKernel) func ticketsLeaveWithTheFirstReply() async throws {
        let text = lines(1)
        var settings = try TestCertificates.server()
        settings.sessionTickets = .issued(2)
        var fewest = Int.max
        for _ in 0..<50 where fewest > 2 {
            let listener = try RawSocket.listening()
            let request = Recorder { socket, told in
                if case .secured = told { socket.write(text, withTimeout: .patient, tag: 0) }
            }
            let client = AsyncSocket(inlineDelegate: request)
            try await client.connect(to: "127.0.0.1", port: listener.localPort)
            let server = try Server(.inline, adopting: listener.accepted())
            try server.socket.beginTLS(settings: settings)
            server.begin()
            try client.beginTLS(settings: TestCertificates.client())
            #expect(try await client.read(exactly: text.count) == text)
            fewest = try await min(fewest, client.receivedSegmentCount)
        }
        #expect(fewest == 2)
    }

    /// A delivery contains sixteen events. Each read is one, and so is the completion of each reply.
    @Test(arguments: [Style.inline, .socketQueue], [false, true])
    func anInlineDelegateAnswersAPipelineWithOneSendForEachDelivery(style: Style, isSecure: Bool) async throws {
        let count = try await countSegments(toAnswer: 100, style, isSecure: isSecure)
        #expect((1...14).contains(count))
    }

    /// On a queue, the callbacks in one block.
    @Test(.unmodifiedKernel, arguments: [false, true])
    func whatOneBlockOfCallbacksWritesLeavesTogether(isSecure: Bool) async throws {
        let answering = Recorder { socket, told in
            if case .read(let line, _) = told { socket.write(line, withTimeout: .patient, tag: 0) }
        }
        let link = try await Link.make(.delegateQueue, atServer: answering)
        if isSecure { try await link.secure(client: TestCertificates.client(), server: TestCertificates.server()) }
        for text in [lines(1), lines(16)] {
            let before = try await link.client.receivedSegmentCount
            for _ in 0..<text.count(where: { $0 == 10 }) { link.server.readData(to: .lineEnd, withTimeout: .patient, tag: 0) }
            link.client.readData(toLength: text.count, withTimeout: .patient, tag: 0)
            link.client.write(text, withTimeout: .patient, tag: 0)
            #expect(try await link.atClient.readData() == text)
            if text.count > lines(1).count { #expect(try await link.client.receivedSegmentCount - before == 1) }
        }
    }

    /// The limits of the write queue apply to data that the kernel does not accept, not to collected data.
    @Test(.unmodifiedKernel) func collectedBytesReachNoLimitOfTheQueue() async throws {
        let (peer, other) = try RawSocket.pair()
        let text = String(repeating: String(repeating: "x", count: 998) + "\r\n", count: 14)
        try peer.send(text)
        let recorder = Recorder { socket, told in
            guard case .read(let line, _) = told else { return }
            socket.write(line, withTimeout: .patient, tag: 0)
            socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        }
        let socket = try AsyncSocket(adopting: other.duplicate(), inlineDelegate: recorder)
        socket.maximumPendingWriteBytes = 2500
        socket.writeHighWaterMark = 1500
        socket.readData(to: .lineEnd, withTimeout: .patient, tag: 0)
        #expect(try peer.receive(atLeast: text.utf8.count) == text)
        socket.disconnect()
        while true {
            let told = await recorder.next()
            if case .highWater(let count) = told { Issue.record("\(count) bytes are above the mark") }
            guard case .disconnected(let error) = told else { continue }
            #expect(error == nil)
            break
        }
    }
}

extension AsyncSocket {
    /// The number of data segments that the kernel has received.
    var receivedSegmentCount: Int {
        get async throws {
            let information = await withCheckedContinuation { continuation in
                perform { descriptor in
                    var information = [UInt8](repeating: 0, count: 232)
                    var length = socklen_t(information.count)
                    guard let descriptor, getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_INFO, &information, &length) == 0 else {
                        return continuation.resume(returning: [UInt8]())
                    }
                    continuation.resume(returning: Array(information.prefix(Int(length))))
                }
            }
            // `tcpi_data_segs_in` in linux/tcp.h, which is missing in glibc's header.
            guard information.count >= 156 else { throw Unexpected(description: "TCP_INFO") }
            return information.withUnsafeBytes { Int($0.loadUnaligned(fromByteOffset: 152, as: UInt32.self)) }
        }
    }
}
