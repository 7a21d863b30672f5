import AsyncSocketsTesting
import Foundation
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Sending and receiving whole files.
@Suite(.timeLimit(.patient)) struct FileTransferTests {
    private let folder: TemporaryFolder
    /// The path of received files.
    private let path: String

    init() throws {
        folder = try TemporaryFolder()
        path = folder.path("received")
    }

    /// Returns whether the partial file already has this many bytes.
    private func isPartOf(_ count: Int) throws -> Bool {
        try folder.names.contains { try FileManager.default.attributesOfItem(atPath: folder.path($0))[.size] as? Int == count }
    }

    private var content: Data { get throws { try Data(contentsOf: URL(filePath: path)) } }

    // MARK: - Whole files

    @Test(arguments: [false, true], [0, 1, 262_145, 16 << 20])
    func aFileArrivesWithTheStreamOrWithItsLength(isSecure: Bool, count: Int) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (client, source, data) = (pair.client, folder.path("source"), pattern(count))
        try data.write(to: folder.url("source"))
        let sending = Task {
            try await client.write(contentsOfFile: source)
            try await client.write("between")
            try await client.write(contentsOfFile: source)
            try await client.close()
        }
        try await pair.server.readToFile(path, exactly: count)
        #expect(try content == data)
        #expect(try await pair.server.read(exactly: 7) == Data("between".utf8))
        // The existing file is replaced.
        #expect(try await pair.server.readToFile(path, maxLength: count) == count)
        #expect(try content == data)
        try await sending.value
        #expect(try folder.names.sorted() == ["received", "source"])
    }

    @Test func untilItIsWholeAFileIsNotThere() async throws {
        let pair = try await SocketPair()
        let (server, path) = (pair.server, path)
        let receiving = Task { try await server.readToFile(path, exactly: 10) }
        try await pair.client.write("hello")
        try await eventually("half of the file is there") { try isPartOf(5) }
        #expect(try folder.names.allSatisfy { $0.hasPrefix(".") && $0.hasSuffix(".part") })
        try await pair.client.write("world")
        try await receiving.value
        #expect(try folder.names == ["received"])
        #expect(try content == Data("helloworld".utf8))
    }

    /// The target of a link may belong to another program.
    @Test func aSymbolicLinkIsReplacedAndNotFollowed() async throws {
        let pair = try await SocketPair()
        try Data("old".utf8).write(to: folder.url("target"))
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: folder.path("target"))
        try await pair.client.write("new")
        try await pair.server.readToFile(path, exactly: 3)
        #expect(try content == Data("new".utf8))
        #expect(try Data(contentsOf: folder.url("target")) == Data("old".utf8))
    }

    // MARK: - Early ends

    @Test(arguments: [false, true]) func anEarlyEndLeavesTheOldFile(isSecure: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        try Data("old".utf8).write(to: URL(filePath: path))
        try await pair.client.write("hello")
        try await pair.client.close()
        let error = await #expect(throws: AsyncSocketError.self) { try await pair.server.readToFile(path, exactly: 10) }
        #expect(error?.code == .closedByPeer)
        #expect(error?.description.contains("(after 5 of 10 bytes of \"\(path)\")") == true)
        #expect(try folder.names == ["received"])
        #expect(try content == Data("old".utf8))
    }

    @Test func aTruncatedStreamLeavesNothing() async throws {
        let (socket, peer) = try await connectedSocket([.send("hello"), .finish], isSecure: true)
        let error = await #expect(throws: AsyncSocketError.self) {
            try await socket.readToFile(path, maxLength: .max)
        }
        #expect(error?.code == .truncated)
        #expect(error?.description.contains("(after 5 bytes of \"\(path)\")") == true)
        #expect(try folder.names.isEmpty)
        _ = try await peer.finish()
    }

    @Test(arguments: [0, 1, 5]) func moreThanMaxLengthEndsTheConnection(_ maxLength: Int) async throws {
        let pair = try await SocketPair()
        try await pair.client.write("hello!")
        let error = await #expect(throws: AsyncSocketError.self) {
            try await pair.server.readToFile(path, maxLength: maxLength)
        }
        #expect(error?.code == .readMaxedOut)
        #expect(error?.message.contains("\(maxLength) bytes") == true)
        #expect(await outcome { try await pair.server.read() } == .failed(.readMaxedOut))
        #expect(try folder.names.isEmpty)
    }

    @Test(arguments: [false, true], [false, true])
    func aCancelledReceptionLeavesNothing(isSecure: Bool, hasReports: Bool) async throws {
        let pair = try await SocketPair(isSecure: isSecure)
        let (server, path) = (pair.server, path)
        let receiving = Task {
            try await server.readToFile(path, maxLength: .max, progress: hasReports ? { _ in } : nil)
        }
        try await pair.client.write("hello")
        try await eventually("the file begins") { try isPartOf(5) }
        receiving.cancel()
        let result = await receiving.result
        #expect(throws: CancellationError.self) { try result.get() }
        #expect(try folder.names.isEmpty)
        // The connection stays open.
        #expect(pair.server.isConnected)
        try await pair.client.close()
    }

    @Test func aReceptionThatTakesTooLongLeavesNothing() async throws {
        let pair = try await SocketPair()
        try await pair.client.write("hello")
        let error = await #expect(throws: AsyncSocketError.self) {
            try await pair.server.readToFile(path, exactly: 6, timeout: .milliseconds(200))
        }
        #expect(error?.code == .readTimeout)
        #expect(error?.message.contains("of 6 bytes of \"\(path)\"") == true)
        let deadline = await outcome {
            try await withDeadline(.milliseconds(50)) { try await pair.server.readToFile(path, exactly: 6) }
        }
        #expect(deadline == .failed(.deadlineExceeded))
        #expect(try folder.names.isEmpty)
    }

    // MARK: - Files that cannot be written

    @Test(arguments: ["", "/", "/tmp", "/tmp/", "/dev/null", "/tmp/a\0b"])
    func otherThingsThanFilesAreRefusedBeforeABytes(_ path: String) async throws {
        let pair = try await SocketPair()
        try await pair.client.write("hello")
        let error = await #expect(throws: AsyncSocketError.self) { try await pair.server.readToFile(path, exactly: 5) }
        #expect(error?.code == .badParameter)
        #expect(error?.message.contains("\"\(path)\"") == true)
        // No byte is lost.
        #expect(try await pair.server.read(exactly: 5) == Data("hello".utf8))
    }

    @Test(arguments: [("/nowhere/file", [ENOENT]), ("/sys/kernel/file", [EACCES, EPERM, EROFS])])
    func aFileThatCannotBeMadeIsNamed(_ path: String, _ numbers: [Int32]) async throws {
        let pair = try await SocketPair()
        try await pair.client.write("hello")
        let error = try #require(
            await #expect(throws: AsyncSocketError.self) { try await pair.server.readToFile(path, maxLength: .max) })
        #expect(error.code == .system && error.fault == .system)
        #expect(numbers.contains(try #require(error.errno)))
        #expect(error.message.contains("\"\(path)\": "))
        #expect(try await pair.server.read(exactly: 5) == Data("hello".utf8))
    }

    @Test func badArgumentsAreNamed() async throws {
        let pair = try await SocketPair()
        let negative = [
            await #expect(throws: AsyncSocketError.self) { try await pair.server.readToFile(path, exactly: -1) },
            await #expect(throws: AsyncSocketError.self) { try await pair.server.readToFile(path, maxLength: -1) },
        ]
        for error in negative {
            #expect(error?.code == .badParameter)
            #expect(error?.message.contains("must be at least 0, but is -1") == true)
        }
        #expect(await outcome { try await AsyncSocket().readToFile(path, exactly: 1) } == .failed(.badConfiguration))
        #expect(try folder.names.isEmpty)
    }
}
