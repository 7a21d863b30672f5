import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

/// Defects of the original that no other suite tests. `Documentation/GCDAsyncSocketReference.md` lists the
/// tests of the rest of D1 to D20.
@Suite(.timeLimit(.patient)) struct DefectTests {
    /// An unencrypted application data record.
    private static let garbage: [UInt8] = [23, 3, 3, 0, 40] + Array(0..<40)

    /// The original reported whatever `errno` happened to hold.
    @Test(arguments: TLSProtocolVersion.tested)
    func d1ATLSFailureWithQueuedWritesIsReportedAsATLSError(_ version: TLSProtocolVersion) async throws {
        let (full, over) = (try TestSignal(), try TestSignal())
        let peer = try ScriptedPeer.listening([
            .startTLS(TestCertificates.server()), .wait(for: full), .sendRaw(Self.garbage), .wait(for: over),
        ])
        let recorder = Recorder(recordsProgress: true)
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try socket.beginTLS(settings: TestCertificates.client().only(version))
        try await recorder.connected()
        try await recorder.secured()
        socket.write(Data(count: 64 << 20), withTimeout: .patient, tag: 0)
        guard case .wrotePartial = await recorder.next() else { throw Unexpected(description: "no progress") }
        full.fire()
        let error = try #require(try await recorder.disconnected())
        expectBadRecord(error)
        over.fire()
        peer.stop()
    }

    /// Unread bytes keep a connection open after its TLS engine has failed, until a write detects the
    /// failure.
    @Test(arguments: TLSProtocolVersion.tested)
    func d1AWriteAfterATLSFailureReportsTheTLSError(_ version: TLSProtocolVersion) async throws {
        let over = try TestSignal()
        let peer = try ScriptedPeer.listening([
            .startTLS(TestCertificates.server()), .send("unread"), .sendRaw(Self.garbage), .wait(for: over),
        ])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        try socket.beginTLS(settings: TestCertificates.client().only(version))
        try await recorder.connected()
        try await recorder.secured()
        var told = Told.wrote(tag: 0)
        while case .wrote = told {
            socket.write(Data("more"), withTimeout: .patient, tag: 0)
            told = await recorder.next()
        }
        guard case .disconnected(let error?) = told else { throw Unexpected(description: "\(told)") }
        expectBadRecord(error)
        over.fire()
        peer.stop()
    }

    /// The error describes the bad record, not its consequences.
    private func expectBadRecord(_ error: AsyncSocketError) {
        #expect(error.code == .tls, "\(error) \(String(describing: error.tls))")
        #expect(error.fault == .peer)
        #expect(error.tls?.sentAlert == .badRecordMAC)
        #expect(error.errno == nil)
    }

    /// The original used more stack for each of them.
    @Test(arguments: Link.Delivery.allCases)
    func d12ManyQueuedReadsDoNotExhaustTheStack(_ delivery: Link.Delivery) async throws {
        let count = 30_000
        let link = try await Link.make(delivery)
        for tag in 0..<count { link.client.readData(toLength: 1, withTimeout: -1, tag: tag) }
        link.server.write(Data((0..<count).map { UInt8(truncatingIfNeeded: $0) }), withTimeout: .patient, tag: 0)
        for expected in 0..<count {
            guard case .read(let data, let tag) = await link.atClient.next() else {
                throw Unexpected(description: "no data after \(expected)")
            }
            guard tag == expected, data == Data([UInt8(truncatingIfNeeded: expected)]) else {
                throw Unexpected(description: "\(data) with tag \(tag) instead of \(expected)")
            }
        }
    }

    /// The original allocated the length that the peer announced.
    @Test func d13AnAnnouncedLengthAllocatesNoMemory() async throws {
        // Other tests allocate memory at the same time, so use the minimum. An allocation for the length
        // would occur each time.
        var leastGrowth = Int.max
        for _ in 0..<5 where leastGrowth >= 1 << 30 {
            leastGrowth = min(leastGrowth, try await growthWithAnAnnouncedLength())
        }
        #expect(leastGrowth < 1 << 30)
    }

    private func growthWithAnAnnouncedLength() async throws -> Int {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        let before = try addressSpace()
        link.client.readData(toLength: 1 << 40, withTimeout: .patient, tag: 0)
        link.server.write(Data("abc"), withTimeout: .patient, tag: 0)
        try await link.atClient.readProgress(to: 3, tag: 0)
        #expect(link.client.readProgress?.total == 1 << 40)
        return try addressSpace() - before
    }

    /// Returns the size of the process's address space in bytes.
    private func addressSpace() throws -> Int {
        let text = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8)
        let pages = try #require(text.split(separator: " ").first.flatMap { Int($0) })
        return pages * sysconf(Int32(_SC_PAGESIZE))
    }

    @Test(arguments: [nil, TLSProtocolVersion.tls13])
    func aLineOfAMegabyteArrivesInSmallPieces(_ version: TLSProtocolVersion?) async throws {
        let text = String(repeating: "0123456789abcdef", count: 1 << 16) + "\r\n"
        let start: [ScriptedPeer.Step] = version == nil ? [] : [.startTLS(try TestCertificates.server())]
        let peer = try ScriptedPeer.listening(start + [.send(text, inPiecesOf: 1000)])
        let recorder = Recorder()
        let socket = AsyncSocket(inlineDelegate: recorder)
        try socket.connect(toHost: "127.0.0.1", onPort: peer.port, withTimeout: .patient)
        if version != nil { try socket.beginTLS(settings: TestCertificates.client()) }
        try await recorder.connected()
        if version != nil { try await recorder.secured() }
        socket.readData(to: .lineEnd, withTimeout: .patient, maxLength: 2 << 20, tag: 0)
        #expect(try await recorder.readText() == text)
    }

    @Test(arguments: ["afterReading", "afterWriting", "afterBoth", "at once"])
    func startTLSOnAConnectionThatIsEndingIsTheCallersError(how: String) async throws {
        let link = try await Link.make()
        link.client.readData(withTimeout: .patient, tag: 0)
        switch how {
        case "afterReading": link.client.disconnectAfterReading()
        case "afterBoth": link.client.disconnectAfterReadingAndWriting()
        case "afterWriting":
            link.client.write(Data(count: 64 << 20), withTimeout: .patient, tag: 0)
            link.client.disconnectAfterWriting()
        default: link.client.disconnect()
        }
        let error = #expect(throws: AsyncSocketError.self) { try link.client.beginTLS(settings: TestCertificates.client()) }
        #expect(error?.code == .closed)
        link.client.disconnect()
        #expect(try await link.atClient.disconnected() == nil)
    }

    /// The kernel's buffer is full when the connection closes. The rest of the record and the close_notify
    /// are sent as soon as the peer reads.
    @Test(arguments: TLSProtocolVersion.tested)
    func aCloseNotifyIsNotCutByAFullSendBuffer(_ version: TLSProtocolVersion) async throws {
        let link = try await Link.make(atClient: Recorder(recordsProgress: true))
        try await link.secure(client: TestCertificates.client().only(version), server: TestCertificates.server())
        link.client.write(Data(count: 64 << 20), withTimeout: .patient, tag: 0)
        guard case .wrotePartial = await link.atClient.next() else { throw Unexpected(description: "no progress") }
        link.client.disconnect()
        link.server.readData(toLength: 64 << 20, withTimeout: .patient, tag: 0)
        #expect(try await link.atServer.disconnected()?.code == .closedByPeer)
    }
}
