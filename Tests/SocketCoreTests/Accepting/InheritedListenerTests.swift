import AsyncSocketsTesting
import Foundation
import Glibc
import SocketCore
import SocketTestTraits
import Testing

/// Accepting from a socket that was created by, and is shared with, another process.
@Suite(.timeLimit(.patient)) struct InheritedListenerTests {
    private static func inherit(_ socket: RawSocket) -> InheritedDescriptor {
        InheritedDescriptor(socket.duplicate(), name: "web")
    }

    /// Accepts from `socket`, and passes on the addresses of the peers, and nil at its end.
    private static func accept(
        from socket: RawSocket, on loop: SocketEventLoop, options: SocketOptionSet = SocketOptionSet()
    ) throws -> (Acceptor, AsyncStream<SocketEndpoint?>.Iterator) {
        let (stream, continuation) = AsyncStream<SocketEndpoint?>.makeStream()
        let receiver = Acceptor.Receiver(
            accepted: { continuation.yield($1) }, paused: { _, _ in }, closed: { continuation.yield(nil) })
        let descriptor = try inherit(socket).takeListener()
        let acceptor = try Acceptor(adopting: descriptor, options: options, loop: loop, receiver: receiver)
        return (acceptor, stream.makeAsyncIterator())
    }

    @Test(arguments: ["127.0.0.1", "::1"])
    func anInheritedSocketGoesOnListeningForItsOtherOwner(host: String) async throws {
        let loop = try SocketEventLoop()
        let socket = try RawSocket.listening(host)
        let early = try RawSocket.connected(to: try socket.localAddress)
        var (acceptor, peers) = try Self.accept(from: socket, on: loop)
        #expect(try acceptor.localAddress == socket.localAddress)
        acceptor.start()
        #expect(try await peers.next() == early.localAddress)
        acceptor.close()
        #expect(await peers.next() == .some(nil))
        #expect(loop.registrationCount == 0)
        let late = try RawSocket.connected(to: try socket.localAddress)
        #expect(try socket.accepted().peerAddress == late.localAddress)
    }

    @Test func theFileOfAnInheritedSocketStays() async throws {
        let loop = try SocketEventLoop()
        let path = "/tmp/as-\(UUID().uuidString.prefix(8))"
        defer { unlink(path) }
        let socket = try RawSocket.listening(on: try #require(SocketEndpoint(unixPath: path)))
        var (acceptor, peers) = try Self.accept(from: socket, on: loop)
        #expect(acceptor.localAddress.unixPath == path)
        acceptor.start()
        let client = try RawSocket.connected(to: acceptor.localAddress)
        #expect(await peers.next() != .some(nil))
        acceptor.close()
        #expect(await peers.next() == .some(nil))
        let late = try RawSocket.connected(to: acceptor.localAddress)
        _ = try socket.accepted()
        withExtendedLifetime((client, late)) {}
    }

    @Test func optionsThatABoundSocketTakesAreSet() throws {
        let loop = try SocketEventLoop()
        let socket = try RawSocket.listening()
        var options = SocketOptionSet()
        try options.set(.keepAlive, to: true)
        try options.set(.reusePort, to: true)
        let (acceptor, _) = try Self.accept(from: socket, on: loop, options: options)
        #expect(try acceptor.withDescriptor { try $0.value(of: .keepAlive) } == true)
        #expect(try acceptor.withDescriptor { try $0.value(of: .reusePort) } == false)
        acceptor.discard()
    }

    @Test func whatDoesNotListenForStreamsIsRefusedAndStays() throws {
        let address = try SocketEndpoint.loopback()
        let path = "/tmp/as-\(UUID().uuidString.prefix(8))"
        defer { unlink(path) }
        let listening = try RawSocket.listening()
        let refused: [(RawSocket, errno: CInt)] = [
            (try .bound(to: address), EINVAL),
            (try .connected(to: try listening.localAddress), EINVAL),
            (try .bound(to: address, SOCK_DGRAM), ESOCKTNOSUPPORT),
            (try .bound(to: try #require(SocketEndpoint(unixPath: path)), SOCK_SEQPACKET), ESOCKTNOSUPPORT),
            (try .pair().0, EINVAL),
        ]
        for (socket, errno) in refused {
            let descriptor = Self.inherit(socket)
            let error = #expect(throws: SystemError.self) { try descriptor.takeListener() }
            #expect(error?.errno == errno)
            #expect(error?.description.contains("\"web\"") == true)
            let number = try #require(descriptor.relinquish())
            #expect(close(number) == 0)
        }
    }

    @Test func whatIsNoSocketIsRefused() throws {
        let file = InheritedDescriptor(open("/dev/null", O_RDONLY), name: "file")
        #expect(file.localAddress == nil)
        let error = #expect(throws: SystemError.self) { try file.takeListener() }
        #expect(error?.errno == ENOTSOCK)
    }

    @Test func aSocketIsHandedOnOnce() throws {
        let descriptor = Self.inherit(try RawSocket.listening())
        let taken = try descriptor.takeListener()
        #expect(fcntl(taken.rawValue, F_GETFD) == FD_CLOEXEC)
        #expect(fcntl(taken.rawValue, F_GETFL) & O_NONBLOCK != 0)
        let error = #expect(throws: SystemError.self) { try descriptor.takeListener() }
        #expect(error?.errno == EBADF)
        #expect(descriptor.relinquish() == nil)
    }
}
