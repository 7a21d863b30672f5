import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketCore

/// Packets and descriptors between two sockets.
@Suite(.timeLimit(.patient)) struct PacketSocketTests {
    private let path = "/tmp/packets.\(UInt64.random(in: .min ... .max))"

    private struct Link {
        let door: PacketSocket
        let near: PacketSocket
        let far: PacketSocket

        init(at path: String) async throws {
            let address = try #require(SocketEndpoint(unixPath: path))
            door = try .listen(at: address, on: .next())
            near = try .connect(to: address, on: .next())
            far = try await door.accept()
        }

        func close() { for socket in [near, far, door] { socket.close() } }
    }

    private func devices(_ count: Int) -> [CInt] { (0..<count).map { _ in open("/dev/null", O_RDONLY | O_CLOEXEC) } }

    @Test func packetsKeepTheirBoundaries() async throws {
        let link = try await Link(at: path)
        defer { link.close() }
        #expect(chmod(path, 0o600) == 0 && link.near.hasEnded == false)
        for bytes in [[1], [2, 3], [UInt8](repeating: 4, count: 65_536)] as [[UInt8]] { try link.near.send(bytes) }
        for count in [1, 2, 65_536] { #expect(try await link.far.receive(until: nil)?.bytes.count == count) }
        link.near.close()
        #expect(link.far.hasEnded)
        #expect(try await link.far.receive(until: nil) == nil)
    }

    @Test(arguments: [1, 253]) func descriptorsArrive(_ count: Int) async throws {
        let link = try await Link(at: path)
        defer { link.close() }
        let sent = devices(count)
        try [UInt8(1)].withUnsafeBytes { try link.near.send($0, descriptors: sent) }
        let packet = try #require(try await link.far.receive(until: nil))
        #expect(packet.descriptors.count == count && Set(packet.descriptors).isDisjoint(with: sent))
        for number in packet.descriptors { #expect(fcntl(number, F_GETFD) == FD_CLOEXEC) }
        for number in sent + packet.descriptors { close(number) }
    }

    @Test func whatDoesNotFitIsNotSent() async throws {
        let link = try await Link(at: path)
        defer { link.close() }
        #expect { try link.near.send([UInt8](repeating: 0, count: 65_537)) } throws: { ($0 as? SystemError)?.errno == EMSGSIZE }
        #expect {
            try [UInt8(1)].withUnsafeBytes { try link.near.send($0, descriptors: Array(repeating: 0, count: 254)) }
        } throws: {
            ($0 as? SystemError)?.errno == EMSGSIZE
        }
        try link.near.send([1])
        #expect(try await link.far.receive(until: nil)?.bytes == [1])
    }

    @Test func waitingEnds() async throws {
        let link = try await Link(at: path)
        await #expect { _ = try await link.far.receive(until: Deadline(after: 0.01)) } throws: {
            ($0 as? SystemError)?.errno == ETIMEDOUT
        }
        let receiving = Task.immediate { try await link.far.receive(until: nil)?.bytes }
        receiving.cancel()
        await #expect { _ = try await receiving.value } throws: { ($0 as? SystemError)?.errno == ECANCELED }
        let accepting = Task.immediate { try await link.door.accept() }
        link.close()
        await #expect { _ = try await accepting.value } throws: { ($0 as? SystemError)?.errno == ECANCELED }
        #expect(access(path, F_OK) != 0)
    }
}
