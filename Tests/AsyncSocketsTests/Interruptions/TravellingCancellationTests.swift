import AsyncSocketsTesting
import Foundation
import Glibc
import SocketCore
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// An operation that becomes complete while the cancellation of its task is on the way to the connection, in
/// both orders. The connection is held until both have been posted.
@Suite(.timeLimit(.patient), .ownThreads) struct TravellingCancellationTests {
    enum Order: CaseIterable, Sendable { case bytesFirst, cancellationFirst }

    enum Read: CaseIterable, Sendable {
        case available, exactly, line, until, frame, peek, toEnd

        /// Reads the bytes of "abcd\r\n", as far as this kind of read takes them.
        func perform(on socket: AsyncSocket) async throws -> Data {
            switch self {
            case .available: try await socket.read() ?? Data()
            case .exactly: try await socket.read(exactly: 6)
            case .line: Data("\(try await socket.readLine() ?? "")\r\n".utf8)
            case .until: try await socket.read(until: .lineEnd)
            case .frame: (try await socket.readFrame(Delimited(by: Data("cd\r\n"))) ?? Data()) + Data("cd\r\n".utf8)
            case .peek: try await socket.peek(exactly: 6).prefix(0)
            case .toEnd: try await socket.readToEnd()
            }
        }
    }

    /// - Parameter first: How many bytes have been received when the rest and the cancellation meet.
    @Test(arguments: pairs(Read.allCases, Order.allCases), pairs([false, true], [0, 3]))
    func noByteIsLostOrRepeated(_ operation: (Read, Order), _ pair: (isSecure: Bool, first: Int)) async throws {
        let (read, order) = operation
        // A read of any number of bytes would be complete with the first ones.
        let first = read == .available ? 0 : pair.first
        let sockets = try await SocketPair(isSecure: pair.isSecure)
        let (client, server, bytes) = (sockets.client, sockets.server, Data("abcd\r\n".utf8))
        let earlier = try await client.held("the connection is free") { $0.data.carried.received }
        let reading = Task.immediate { try await read.perform(on: client) }
        try await client.readWaits()
        if first > 0 { try await server.write(bytes.prefix(first)) }
        try await client.turn("the first bytes have been received") { $0.data.carried.received - earlier == first }
        try await client.held("the connection is free") { connection in
            if order == .cancellationFirst { reading.cancel() }
            server.write(bytes.dropFirst(first), withTimeout: .patient, tag: 1)
            try connection.waitForInput()
            connection.handle(.readable)
            if order == .bytesFirst { reading.cancel() }
            return ()
        }
        var received = Data()
        switch await reading.result {
        case .success(let data): received += data
        case .failure(let error): #expect(error is CancellationError)
        }
        try await server.write("end")
        server.closeWriteStream()
        received += try await client.readToEnd()
        #expect(received == bytes + Data("end".utf8))
    }

    // MARK: - Writes

    /// The kernel has room again while the cancellation is on the way. The message is sent whole or not at
    /// all, and later messages follow it.
    ///
    /// - Parameter write: The size, and whether a part of it has already been sent.
    @Test(arguments: Order.allCases, [(1, false), (5_000, false), (100_000, false), (100_000, true)])
    func noWriteIsCut(_ order: Order, _ write: (size: Int, isBegun: Bool)) async throws {
        let (kernel, victim) = try FullKernel.make(.task)
        let (socket, count, message) = (victim.socket, write.isBegun ? 0 : kernel.fill(), pattern(write.size))
        let writing = Task.immediate { try await socket.write(message) }
        // After an injected shortage, a write is pending although nothing has been sent.
        try await socket.turn("it is pending") { $0.data.writes.progress != nil && (!write.isBegun || $0.data.carried.sent > 0) }
        let first = try await socket.held("the connection is free") { connection in
            if order == .cancellationFirst { writing.cancel() }
            let first = try kernel.peer.receiveArrived(max(count, 1))
            connection.handle(.writable)
            if order == .bytesFirst { writing.cancel() }
            return write.isBegun ? first : []
        }
        async let rest = kernel.peer.everything()
        let outcome = await writing.outcome
        try await socket.write("end")
        try await socket.close()
        kernel.release()
        let received = Data(first + (try await rest))
        let isWhole = received == message + Data("end".utf8)
        let isMissing = received == Data("end".utf8)
        if outcome == .served || write.isBegun { #expect(isWhole) } else { #expect(isWhole || isMissing) }
        #expect(outcome == .served || outcome == .cancelled)
    }
}

extension StreamConnection {
    /// Waits until the kernel has bytes for this connection. Called inside the turn, so that they stay there.
    fileprivate func waitForInput() throws {
        guard let descriptor = data.channel?.descriptor.rawValue else { throw Unexpected(description: "closed") }
        var question = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while poll(&question, 1, Patience.milliseconds) != 1 {
            guard errno == EINTR else { throw Unexpected(description: "nothing arrived") }
        }
    }
}
