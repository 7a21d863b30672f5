import AsyncSockets
import AsyncSocketsTesting
import Dispatch
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct UnixListenerTests {
    @Test func aUnixListenerRemovesItsSocketFileWhenItCloses() async throws {
        let folder = try TemporaryFolder()
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onPath: folder.path("s"))
        let address = try #require(listener.localAddress)
        #expect(address.family == .unix)
        let client = try RawSocket.connected(to: address)
        let child = try await recorder.accepted()
        child.write(Data("hello"), withTimeout: .patient, tag: 0)
        #expect(try client.receive(atLeast: 5) == "hello")
        listener.disconnect()
        #expect(try folder.names == [])
        #expect(try await recorder.disconnected() == nil)
        #expect(child.isConnected)
    }

    /// Objects that may exist at a path: a name for the error, and how to create it.
    private static let obstacles: [(name: String, make: @Sendable (String) -> CInt)] = [
        ("a file", { close(open($0, O_CREAT | O_WRONLY, 0o600)) }),
        ("a directory", { mkdir($0, 0o700) }),
        ("a FIFO", { mkfifo($0, 0o600) }),
        ("a symbolic link", { symlink("nowhere", $0) }),
    ]

    @Test(arguments: 0..<obstacles.count)
    func d15AUnixListenerDoesNotDeleteOtherFiles(_ index: Int) throws {
        let (name, make) = Self.obstacles[index]
        let folder = try TemporaryFolder()
        let url = folder.url("obstacle")
        try #require(make(url.path) == 0)
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        let error = #expect(throws: AsyncSocketError.self) { try listener.accept(onPath: url.path) }
        #expect(error?.errno == EADDRINUSE)
        #expect(error?.message.contains(name) == true)
        #expect(error?.message.contains(url.path) == true)
        #expect(try folder.names == ["obstacle"])
        #expect(listener.isDisconnected)
    }

    @Test func d15ASocketThatIsInUseStaysInUse() async throws {
        let folder = try TemporaryFolder()
        let recorders = [Recorder(), Recorder()]
        let (first, second) = (AsyncSocket(inlineDelegate: recorders[0]), AsyncSocket(inlineDelegate: recorders[1]))
        try first.accept(onPath: folder.path("s"))
        let error = #expect(throws: AsyncSocketError.self) { try second.accept(onPath: folder.path("s")) }
        #expect(error?.errno == EADDRINUSE)
        #expect(error?.message.contains("in use") == true)
        let client = try RawSocket.connected(to: try #require(first.localAddress))
        try client.send("to the first")
        #expect(await firstText(at: recorders[0], length: 12) == "to the first")
        withExtendedLifetime((first, recorders)) {}
    }

    /// The kernel returns EAGAIN, so the server exists but is busy.
    @Test func d15AServerWithAFullBacklogKeepsItsFile() throws {
        let folder = try TemporaryFolder()
        let address = try folder.address("s")
        let server = try RawSocket.listening(on: address, backlog: 0)
        let first = try RawSocket.connected(to: address)
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        let error = #expect(throws: AsyncSocketError.self) { try listener.accept(onPath: folder.path("s")) }
        #expect(error?.errno == EADDRINUSE)
        #expect(error?.message.contains("in use") == true)
        #expect(try folder.names == ["s"])
        let peer = try server.accepted()
        try first.send("still there")
        #expect(try peer.receive(atLeast: 11) == "still there")
        _ = try RawSocket.connected(to: address)
    }

    @Test func d15ADatagramSocketThatIsInUseStays() throws {
        let folder = try TemporaryFolder()
        let other = try RawSocket.bound(to: folder.address("s"), SOCK_DGRAM)
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        let error = #expect(throws: AsyncSocketError.self) { try listener.accept(onPath: folder.path("s")) }
        #expect(error?.errno == EADDRINUSE)
        #expect(try folder.names == ["s"])
        withExtendedLifetime(other) {}
    }

    @Test func aSocketThatACrashHasLeftIsReplaced() async throws {
        let folder = try TemporaryFolder()
        _ = try RawSocket.bound(to: folder.address("s"))
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onPath: folder.path("s"))
        let client = try RawSocket.connected(to: try #require(listener.localAddress))
        let child = try await recorder.accepted()
        child.write(Data("new"), withTimeout: .patient, tag: 0)
        #expect(try client.receive(atLeast: 3) == "new")
        withExtendedLifetime((listener, recorder)) {}
    }

    @Test func d15APathThatIsTooLongIsRejectedRatherThanTruncated() throws {
        let folder = try TemporaryFolder()
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        let room = 107 - folder.path.utf8.count - 1
        let error = #expect(throws: AsyncSocketError.self) {
            try listener.accept(onPath: folder.path(String(repeating: "x", count: room + 1)))
        }
        #expect(error?.code == .badParameter)
        #expect(error?.message.contains("108") == true)
        #expect(try folder.names == [])
        let longest = String(repeating: "x", count: room)
        try listener.accept(onPath: folder.path(longest))
        #expect(try folder.names == [longest])
        _ = try RawSocket.connected(to: try #require(listener.localAddress))
        listener.disconnect()
        #expect(try folder.names == [])
    }

    @Test func d15ClosingAListenerDoesNotRemoveAnotherSocketsFile() throws {
        let folder = try TemporaryFolder()
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onPath: folder.path("s"))
        try #require(rename(folder.url("s").path, folder.url("moved").path) == 0)
        let other = try RawSocket.bound(to: folder.address("s"))
        listener.disconnect()
        #expect(try folder.names.sorted() == ["moved", "s"])
        withExtendedLifetime(other) {}
    }

    @Test func theFileGoesWithTheLastReferenceToo() async throws {
        let folder = try TemporaryFolder()
        let recorder = Recorder()
        var listener: AsyncSocket? = AsyncSocket(inlineDelegate: recorder)
        try listener?.accept(onPath: folder.path("s"))
        #expect(try folder.names == ["s"])
        listener = nil
        #expect(try folder.names == [])
    }

    @Test func whatIsNoUsablePathIsATypedError() throws {
        let folder = try TemporaryFolder()
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        for path in ["", "/tmp/a\0b", String(repeating: "é", count: 54)] {
            let error = #expect(throws: AsyncSocketError.self) { try listener.accept(onPath: path) }
            #expect(error?.code == .badParameter)
        }
        let error = #expect(throws: AsyncSocketError.self) { try listener.accept(onPath: folder.path("missing/s")) }
        #expect(error?.errno == ENOENT)
    }

    @Test func aListenerAcceptsOnAnAbstractName() async throws {
        var bytes = Data([UInt8(AF_UNIX), 0, 0])
        bytes.append(Data("async-sockets-\(getpid())".utf8))
        let address = try #require(SocketEndpoint(data: bytes))
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        try listener.accept(onAddress: address)
        #expect(listener.localAddress == address)
        let client = try RawSocket.connected(to: address)
        let child = try await recorder.accepted()
        child.write(Data("abstract"), withTimeout: .patient, tag: 0)
        #expect(try client.receive(atLeast: 8) == "abstract")
        let second = AsyncSocket(inlineDelegate: recorder)
        let error = #expect(throws: AsyncSocketError.self) { try second.accept(onAddress: address) }
        #expect(error?.errno == EADDRINUSE)
        withExtendedLifetime((listener, recorder)) {}
    }

    /// Several listeners start at the same time at a path where a crash has left a socket. One of them gets
    /// the path, and every client reaches it.
    @Test func ofManyThatStartAtOnceOneGetsThePath() async throws {
        let folder = try TemporaryFolder()
        for round in 0..<100 {
            _ = try RawSocket.bound(to: folder.address("s\(round)"))
            let recorders = (0..<4).map { _ in Recorder() }
            let listeners = recorders.map { AsyncSocket(inlineDelegate: $0) }
            let url = folder.url("s\(round)")
            let winners = Locked<[Int]>([])
            DispatchQueue.concurrentPerform(iterations: listeners.count) { index in
                if (try? listeners[index].accept(onPath: url.path)) != nil { winners.withLock { $0.append(index) } }
            }
            let won = winners.withLock { $0 }
            try #require(won.count == 1, "\(won.count) listen on \(url.path)")
            let listener = listeners[won[0]]
            let client = try RawSocket.connected(to: try #require(listener.localAddress))
            try client.send("\(round)")
            #expect(await firstText(at: recorders[won[0]], length: "\(round)".count) == "\(round)")
            listener.disconnect()
        }
        #expect(try folder.names == [])
    }

    /// Returns the first `length` bytes of any accepted connection. Some connections send none, because they
    /// only probe for a listener.
    private func firstText(at recorder: Recorder, length: Int) async -> String {
        while true {
            switch await recorder.next() {
            case .accepted(let child): child.readData(toLength: length, withTimeout: .patient, tag: 0)
            case .read(let data, _): return String(decoding: data, as: UTF8.self)
            default: continue
            }
        }
    }
}
