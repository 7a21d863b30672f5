import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Every way in which a peer can end a connection, with and without unread bytes, a waiting read and a
/// waiting write, in both styles. Each waiting operation completes once, bytes received before are not lost,
/// and the session is kept unless TLS has failed (RFC 5246, 7.2). Set END_TABLE in the environment to print
/// the table.
@Suite(.timeLimit(.patient)) struct EndTableTests {
    enum End: String, CaseIterable, Sendable {
        case orderly, truncation, reset, badRecord

        func steps(isSecure: Bool) -> [ScriptedPeer.Step] {
            switch self {
            case .orderly: .orderlyEnd(isSecure: isSecure)
            case .truncation: [.finish]
            case .reset: [.reset]
            case .badRecord: [.sendRaw([23, 3, 3, 0, 20] + [UInt8](repeating: 0, count: 20))]
            }
        }

        /// The peer has closed only its own side.
        var isOfOneSide: Bool { self == .orderly || self == .truncation }

        var code: AsyncSocketError.Code {
            switch self {
            case .orderly: .closedByPeer
            case .truncation: .truncated
            case .reset: .connectionReset
            case .badRecord: .tls
            }
        }
    }

    struct Row: Sendable, CustomStringConvertible {
        let end: End
        let version: TLSProtocolVersion?
        let hasUnread: Bool
        let reads: Bool
        let writes: Bool

        static let all: [Row] = {
            var rows: [Row] = []
            for end in End.allCases {
                for version in [nil] + TLSProtocolVersion.tested.map(Optional.some)
                where version != nil || end == .orderly || end == .reset {
                    for number in 0..<8 {
                        rows.append(
                            Row(
                                end: end, version: version, hasUnread: number & 1 != 0, reads: number & 2 != 0,
                                writes: number & 4 != 0))
                    }
                }
            }
            return rows
        }()

        var description: String {
            let parts = [
                end.rawValue, version.map { "\($0)" } ?? "plain", hasUnread ? "unread" : nil, reads ? "read" : nil,
                writes ? "write" : nil,
            ]
            return parts.compactMap(\.self).joined(separator: ", ")
        }

        func peer(_ mayEnd: TestSignal) throws -> ScriptedPeer {
            let start: [ScriptedPeer.Step] = version == nil ? [] : [.startTLS(try TestCertificates.server())]
            return try ScriptedPeer.listening(
                start + (hasUnread ? [.send("123456")] : []) + [.wait(for: mayEnd)] + end.steps(isSecure: version != nil))
        }

        func client() throws -> TLSClientSettings? { try version.map { try TestCertificates.client().only($0) } }
    }

    /// More than the kernel buffers of both sides hold.
    private static let more = Data(count: 16 << 20)

    private func note(_ style: String, _ row: Row, _ told: String) {
        if ProcessInfo.processInfo.environment["END_TABLE"] != nil { print("| \(style) | \(row) | \(told) |") }
    }

    // MARK: - Tasks

    @Test(arguments: Row.all) func tasksAreToldOnce(row: Row) async throws {
        let mayEnd = try TestSignal()
        let peer = try row.peer(mayEnd)
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: peer.port, tls: row.client())
        let read = row.reads ? Task.immediate { try await socket.read(exactly: 100) } : nil
        let write = row.writes ? Task.immediate { try await socket.write(Self.more) } : nil
        if row.reads, row.hasUnread { try await eventually("they are there") { socket.readProgress?.bytesDone == 6 } }
        if row.writes { try await eventually("it waits") { socket.writeProgress != nil } }
        mayEnd.fire()
        var told: [String] = []
        if let read {
            let outcome = await read.outcome
            told.append("read: \(outcome)")
            #expect(outcome == .failed(row.end.code), "\(row)")
        }
        if let write {
            let outcome = await write.outcome
            told.append("write: \(outcome)")
            #expect(outcome == (row.end.isOfOneSide ? .served : .failed(row.end.code)), "\(row)")
        }
        // An abortive end discards what a waiting read has collected.
        if row.hasUnread, row.end.isOfOneSide || !row.reads && !row.writes {
            #expect(try await socket.read(exactly: 6) == Data("123456"), "\(row)")
            told.append("then the bytes")
        }
        for _ in 0..<2 {
            let later = await outcome { try await socket.read(exactly: 1) }
            #expect(later == .failed(row.end.code), "\(row)")
        }
        let last = await outcome { try await socket.readToEnd() }
        #expect(last == (row.end == .orderly ? .served : .failed(row.end.code)), "\(row)")
        told.append("to the end: \(last)")
        if row.end.isOfOneSide {
            try await socket.write("more")
            try await socket.close()
        } else {
            try await eventually("it has ended") { !socket.isConnected }
            #expect(await outcome { try await socket.write("more") } == .failed(row.end.code), "\(row)")
        }
        note("task", row, told.joined(separator: "; "))
        peer.stop()
    }

    // MARK: - Delegates

    @Test(arguments: Row.all, [false, true]) func delegatesAreToldOnce(row: Row, disconnects: Bool) async throws {
        let mayEnd = try TestSignal()
        let peer = try row.peer(mayEnd)
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        socket.autoDisconnectOnClosedReadStream = disconnects
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try await recorder.connected()
        if let settings = try row.client() {
            try socket.beginTLS(settings: settings)
            try await recorder.secured()
        }
        if row.reads { socket.readData(toLength: 100, withTimeout: -1, tag: 1) }
        if row.writes { socket.write(Self.more, tag: 2) }
        if row.reads, row.hasUnread { try await eventually("they are there") { socket.readProgress?.bytesDone == 6 } }
        if row.writes { try await eventually("it waits") { socket.writeProgress != nil } }
        mayEnd.fire()
        let staysOpen = row.end.isOfOneSide && !disconnects
        var (told, hasRead): ([String], Bool) = ([], row.reads || !row.hasUnread)
        var (hasWritten, isHalfClosed) = (!row.writes, false)
        loop: while true {
            // Unread bytes delay the end, so read them.
            if !hasRead {
                hasRead = true
                socket.readData(toLength: 6, withTimeout: -1, tag: 3)
            }
            if staysOpen, hasWritten, isHalfClosed {
                isHalfClosed = false
                socket.disconnectAfterWriting()
            }
            switch await recorder.next() {
            case .read(let data, 3):
                #expect(data == Data("123456"), "\(row)")
                told.append("the bytes")
            case .notRead(let data, _, let error):
                #expect(data == Data(row.hasUnread && row.reads ? "123456" : ""), "\(row)")
                told.append("read: \(error.code)")
            case .wrote(2):
                hasWritten = true
                told.append("written")
            case .readStreamClosed:
                isHalfClosed = true
                told.append("read side closed")
            case .readPartial, .wrotePartial: continue
            case .disconnected(let error):
                told.append("end: \(error.map { "\($0.code)" } ?? "ours")")
                let isTold = told.contains("read: \(row.end.code)")
                let code = staysOpen ? (row.end == .truncation && !isTold ? row.end.code : nil) : row.end.code
                #expect(error?.code == code, "\(row)")
                break loop
            case let other: throw Unexpected(description: "\(row): \(other)")
            }
        }
        #expect(Set(told).count == told.count, "\(row): \(told)")
        #expect(told.contains("read side closed") == staysOpen, "\(row): \(told)")
        if row.hasUnread, !row.reads, row.end.isOfOneSide || !row.writes {
            #expect(told.contains("the bytes"), "\(row): \(told)")
        }
        if staysOpen, row.writes { #expect(told.contains("written"), "\(row): \(told)") }
        note(disconnects ? "delegate" : "delegate, half-close", row, told.joined(separator: "; "))
        peer.stop()
    }

    // MARK: - Sessions

    @Test(arguments: End.allCases, TLSProtocolVersion.tested)
    func sessionsAreKeptUnlessTLSFails(end: End, version: TLSProtocolVersion) async throws {
        var settings = try TestCertificates.server()
        settings.sessionTickets = .issued(1)
        var session: TLSResumableSession?
        for round in 0..<2 {
            let mayEnd = try TestSignal()
            let peer = try ScriptedPeer.listening(
                [.startTLS(settings), .send("123456"), .wait(for: mayEnd)] + end.steps(isSecure: true))
            let socket = AsyncSocket()
            var client = try TestCertificates.client().only(version)
            if let session { client.resumption = .session(session) }
            try await socket.connect(to: "127.0.0.1", port: peer.port, tls: client)
            #expect(socket.tlsSession?.isResumed == (round == 1 && end != .badRecord), "\(end), \(version)")
            #expect(try await socket.read(exactly: 6) == Data("123456"))
            session = try #require(socket.tlsSession?.resumable)
            #expect(session?.isUsable == true)
            mayEnd.fire()
            #expect(await outcome { try await socket.read(exactly: 1) } == .failed(end.code))
            if end.isOfOneSide { try await socket.close() }
            // OpenSSL marks the session when the connection's memory is released.
            if end == .badRecord { try await eventually("it is marked") { session?.isUsable == false } }
            peer.stop()
        }
        note(
            "session", Row(end: end, version: version, hasUnread: false, reads: false, writes: false),
            "usable: \(session?.isUsable == true)")
    }
}
