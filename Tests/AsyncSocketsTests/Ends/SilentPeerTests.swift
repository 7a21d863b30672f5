import AsyncSocketsTesting
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A peer that neither sends nor reads, a waiting operation, and another one behind it. The second one times
/// out as expected, and its error names the reason.
@Suite(.timeLimit(.patient)) struct SilentPeerTests {
    /// The operation that is already waiting, without a timeout.
    enum First: CaseIterable, Sendable {
        case nothing, read, line, delegatesRead, write, file, delegatesWrite, startTLS, request

        /// Whether the operation is possible on a secure or a plaintext connection.
        func isPossible(isSecure: Bool) -> Bool {
            switch self {
            case .startTLS: !isSecure
            case .request: isSecure
            default: true
            }
        }

        var isTasksRead: Bool { self == .read || self == .line }
        var isWrite: Bool { self == .write || self == .file || self == .delegatesWrite }
    }

    /// The operation behind it.
    enum Second: CaseIterable, Sendable {
        case read, exactly, until, line, toEnd, frame, borrowed, chunks, lines, frames
        case write, file, frameOut
        case startTLS, request, close, connect

        var isRead: Bool {
            switch self {
            case .read, .exactly, .until, .line, .toEnd, .frame, .borrowed, .chunks, .lines, .frames: true
            default: false
            }
        }

        var isWrite: Bool { self == .write || self == .file || self == .frameOut }

        /// Whether it has a timeout of its own, as a parameter or in its settings.
        var hasOwnLimit: Bool { self != .chunks && self != .lines && self != .frames }
    }

    /// More than the kernel buffers of both sides hold.
    private static let much = Data(count: 16 << 20)
    private static let format = LengthPrefixed<UInt32>(maxLength: 64 << 20)

    private struct Place {
        let socket: AsyncSocket
        let peer: ScriptedPeer
        let file: String
        let delegate = Recorder()
    }

    /// Returns a socket and its peer. With TLS, the socket is the server, which can request a certificate.
    private func connected(isSecure: Bool, handshakeTimeout: TimeInterval, in folder: TemporaryFolder) async throws -> Place {
        let silence = ScriptedPeer.Step.wait(for: try TestSignal())
        guard isSecure else {
            let (socket, peer) = try await connectedSocket([silence])
            return Place(socket: socket, peer: peer, file: folder.path("file"))
        }
        var (client, server) = try TestCertificates.mutual(.certificatesOnRequest())
        client.allowsPostHandshakeAuthentication = true
        server.handshakeTimeout = .seconds(handshakeTimeout)
        let (socket, peer) = try await connectedSocket([.startTLS(client), silence])
        try await socket.startTLS(settings: server)
        return Place(socket: socket, peer: peer, file: folder.path("file"))
    }

    /// Starts the first operation. Returns the waiting tasks.
    private func begin(
        _ first: First, _ place: Place, readTimeout: TimeInterval, handshakeTimeout: TimeInterval
    ) async throws -> [Task<Void, any Error>] {
        let socket = place.socket
        switch first {
        case .nothing: return []
        case .read: return [Task.immediate { _ = try await socket.read() }]
        case .line: return [Task.immediate { _ = try await socket.readLine() }]
        case .write: return [Task.immediate { try await socket.write(Self.much) }]
        case .file: return [Task.immediate { [file = place.file] in try await socket.write(contentsOfFile: file) }]
        case .startTLS:
            var settings = try TestCertificates.client()
            settings.handshakeTimeout = .seconds(handshakeTimeout)
            return [Task.immediate { [settings] in try await socket.startTLS(settings: settings) }]
        case .request: return [Task.immediate { _ = try await socket.requestClientCertificate() }]
        case .delegatesRead, .delegatesWrite:
            socket.setInlineDelegate(place.delegate)
            if first == .delegatesRead {
                socket.readData(toLength: 1, withTimeout: readTimeout, tag: 1)
            } else {
                socket.write(Self.much, tag: 1)
            }
            return []
        }
    }

    /// Performs the second operation.
    private func perform(_ second: Second, _ place: Place, timeout: Duration?) async throws {
        let (socket, format) = (place.socket, Self.format)
        switch second {
        case .read: _ = try await socket.read(timeout: timeout)
        case .exactly: _ = try await socket.read(exactly: 3, timeout: timeout)
        case .until: _ = try await socket.read(until: Data("."), timeout: timeout)
        case .line: _ = try await socket.readLine(timeout: timeout)
        case .toEnd: _ = try await socket.readToEnd(timeout: timeout)
        case .frame: _ = try await socket.readFrame(format, timeout: timeout)
        case .borrowed: _ = try await socket.withNextBytes(timeout: timeout) { $0.byteCount }
        case .chunks: for try await _ in socket.chunks {}
        case .lines: for try await _ in socket.lines {}
        case .frames: for try await _ in socket.frames(format) {}
        case .write: try await socket.write(Self.much, timeout: timeout)
        case .file: try await socket.write(contentsOfFile: place.file, timeout: timeout)
        case .frameOut: try await socket.write(Self.much, as: format, timeout: timeout)
        case .startTLS:
            var settings = try TestCertificates.client()
            settings.handshakeTimeout = timeout == nil ? .patient : .seconds(0.05)
            try await socket.startTLS(settings: settings)
        case .request: _ = try await socket.requestClientCertificate()
        case .close: try await socket.close(timeout: timeout ?? .patient)
        case .connect: try await socket.connect(to: "127.0.0.1", port: place.peer.port, timeout: timeout)
        }
    }

    /// Returns the result of the second operation. If it does not end, records an issue and closes the
    /// connection.
    private func outcome(
        _ second: Second, _ place: Place, _ limit: Limit, deadline: Duration
    ) async throws -> (Outcome, String) {
        let task = Task.immediate {
            switch limit {
            case .own: try await perform(second, place, timeout: .milliseconds(30))
            case .deadline: try await withDeadline(deadline) { try await perform(second, place, timeout: nil) }
            }
        }
        let hasEnded = Locked(false)
        let watching = Task {
            _ = await task.result
            hasEnded.withLock { $0 = true }
        }
        let start = ContinuousClock.now
        try await eventually("it ends") { hasEnded.withLock { $0 } || start.duration(to: .now) > .patient }
        if !hasEnded.withLock({ $0 }) { Issue.record("\(second) has not ended") }
        place.socket.disconnect()
        await watching.value
        switch await task.result {
        case .success: return (.served, "")
        case .failure(let error): return (Outcome(error), (error as? AsyncSocketError)?.message ?? "")
        }
    }

    /// How the second operation is limited: by its own parameter or settings, or by an enclosing deadline.
    enum Limit: CaseIterable, Sendable { case own, deadline }

    /// Returns the expected result and a part of the error message.
    private func expectation(_ first: First, _ second: Second, _ limit: Limit, isSecure: Bool) -> (Outcome, String) {
        func late(_ code: AsyncSocketError.Code, _ word: String = "did not complete within 0.") -> (Outcome, String) {
            limit == .own ? (.failed(code), word) : (.failed(.deadlineExceeded), "deadline")
        }
        switch second {
        case _ where second.isRead: return late(.readTimeout)
        case _ where second.isWrite: return late(.writeTimeout)
        case .connect: return (.failed(.badConfiguration), "disconnect it first")
        // It waits only for queued writes.
        case .close: return first.isWrite ? late(.writeTimeout) : (.served, "")
        case .request where !isSecure: return (.failed(.badConfiguration), "not secure")
        case .request where first == .request: return (.failed(.tls), "the previous request is still pending")
        case .startTLS where isSecure || first == .startTLS:
            return (.failed(.badConfiguration), "already been called on this connection")
        case .startTLS where first.isTasksRead: return (.failed(.badConfiguration), "has a pending read")
        case .startTLS where first.isWrite: return late(.handshakeTimeout, "the writes queued before startTLS were not sent")
        // A delegate's read has its own timeout, which closes the connection.
        case .startTLS where first == .delegatesRead && limit == .own: return (.failed(.readTimeout), "within 0.05 seconds")
        case .request where limit == .own: return late(.handshakeTimeout, "within 4")
        default: return late(.handshakeTimeout, "within 0.05 seconds")
        }
    }

    /// The handshake must also complete within this time.
    private static let requestLimit = 4.0

    @Test(arguments: First.allCases, [false, true])
    func everyOperationEndsBehindAnother(_ first: First, isSecure: Bool) async throws {
        guard first.isPossible(isSecure: isSecure) else { return }
        let folder = try TemporaryFolder()
        try Self.much.write(to: folder.url("file"))
        for second in Second.allCases {
            for limit in Limit.allCases where limit == .deadline || second.hasOwnLimit {
                let place = try await connected(
                    isSecure: isSecure, handshakeTimeout: limit == .own && second == .request ? Self.requestLimit : .patient,
                    in: folder)
                // A close waits for the handshake.
                let tasks = try await begin(
                    first, place, readTimeout: limit == .own && second == .startTLS ? 0.05 : -1,
                    handshakeTimeout: second == .close ? 5 : .patient)
                let (expected, word) = expectation(first, second, limit, isSecure: isSecure)
                // An immediate result must precede any deadline, even on a busy machine.
                let deadline = expected == .failed(.deadlineExceeded) ? Duration.milliseconds(30) : .patient
                let (outcome, message) = try await outcome(second, place, limit, deadline: deadline)
                #expect(
                    outcome == expected && (word.isEmpty || message.contains(word)), "\(second), \(limit): \(outcome), \(message)"
                )
                // The first operation has completed too.
                for task in tasks { #expect(await task.outcome != .served) }
                place.peer.stop()
            }
        }
    }
}
