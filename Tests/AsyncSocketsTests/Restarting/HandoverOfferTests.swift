import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTLS
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// Offers of other processes, which may be invalid or incomplete.
@Suite(.timeLimit(.patient)) struct HandoverOfferTests {
    private let folder: TemporaryFolder
    private let path: String

    init() throws {
        folder = try TemporaryFolder()
        path = folder.path("restart")
    }

    /// The successor keeps the sockets of a process that exits after its offer.
    @Test(arguments: [false, true]) func aPredecessorMayExitAfterItsOffer(_ isUnread: Bool) async throws {
        let door = try PacketSocket.listen(at: try folder.address("restart"), on: .next())
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        let starting = Task.immediate { [path] in try await HotRestart(path: path) }
        let successor = try await door.accept()
        let numbers = [try door.duplicate(), try #require(try listener.listener.acceptors[0].duplicate())]
        let json = #"{"version":1,"listeners":[{"name":"greeter","files":[null]}]}"#
        try Array(json.utf8).withUnsafeBytes { try successor.send($0, descriptors: numbers) }
        for number in numbers { close(number) }
        try TLSRotatingTicketKeys().withRecords { try successor.send($0, descriptors: []) }
        let restart = try await starting.value
        let inherited = try SocketListener(inherited: restart.descriptors(named: "greeter"))
        if !isUnread { successor.close() }
        let taking = Task.immediate { try await restart.takeOver(["greeter": inherited]) }
        // Its packet was sent before.
        successor.close()
        try await taking.value
        door.close()
    }

    /// A predecessor that never confirms stays in service.
    @Test func aConfirmationIsNotAwaitedForLong() async throws {
        let door = try PacketSocket.listen(at: try folder.address("restart"), on: .next())
        defer { door.close() }
        let starting = Task.immediate { [path] in try await HotRestart(path: path) }
        let predecessor = try await door.accept()
        let number = try door.duplicate()
        defer { close(number) }
        try Array(#"{"version":1,"listeners":[]}"#.utf8).withUnsafeBytes { try predecessor.send($0, descriptors: [number]) }
        try TLSRotatingTicketKeys().withRecords { try predecessor.send($0, descriptors: []) }
        let restart = try await starting.value
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        await #expect {
            try await restart.takeOver(["greeter": listener], timeout: .milliseconds(20))
        } throws: {
            ($0 as? AsyncSocketError)?.errno == ETIMEDOUT
        }
        #expect(try await predecessor.receive(until: nil)?.bytes == HandoverReply.ready)
        let end = try await predecessor.receive(until: nil)
        #expect(end == nil)
        await listener.close(timeout: .zero)
    }

    /// Accepts one connection and sends it packets, each with the given number of descriptors.
    private func offering(_ packets: [(bytes: [UInt8], descriptorCount: Int)], _ test: () async throws -> Void) async throws {
        let door = try PacketSocket.listen(at: try folder.address("restart"), on: .next())
        defer { door.close() }
        let offer = Task {
            let successor = try await door.accept()
            for packet in packets {
                let descriptors = (0..<packet.descriptorCount).map { _ in open("/dev/null", O_RDONLY | O_CLOEXEC) }
                defer { for number in descriptors { close(number) } }
                try packet.bytes.withUnsafeBytes { try successor.send($0, descriptors: descriptors) }
            }
            successor.close()
        }
        try await test()
        _ = await offer.result
    }

    @Test(arguments: [
        "", "hello", "{}", #"{"version":2,"listeners":[]}"#, #"{"version":1,"listeners":[{"name":"a","files":[null,null]}]}"#,
        #"{"version":1,"listeners":[]}"#,
    ])
    func anInvalidOfferIsRefused(_ json: String) async throws {
        let keys = [UInt8](repeating: 0, count: 88)
        try await offering(json.isEmpty ? [] : [(Array(json.utf8), 2), (keys, 0)]) {
            await #expect { try await HotRestart(path: path) } throws: { ($0 as? AsyncSocketError)?.code == .badConfiguration }
        }
    }

    @Test(arguments: [0, 1, 87, 89, 264]) func invalidKeysAreRefused(_ count: Int) async throws {
        let json = #"{"version":1,"listeners":[{"name":"a","files":[null]}]}"#
        let keys = [UInt8](repeating: 0, count: count)
        try await offering([(Array(json.utf8), 2)] + (count == 0 ? [] : [(keys, 0)])) {
            await #expect(throws: (any Error).self) { try await HotRestart(path: path) }
        }
    }

    @Test func aSilentProcessIsNotAwaitedForLong() async throws {
        let door = try PacketSocket.listen(at: try folder.address("restart"), on: .next())
        defer { door.close() }
        await #expect {
            try await HotRestart(path: path, timeout: .milliseconds(20))
        } throws: {
            ($0 as? AsyncSocketError)?.errno == ETIMEDOUT
        }
        let waiting = Task.immediate { [path] in try await HotRestart(path: path) }
        waiting.cancel()
        await #expect(throws: CancellationError.self) { _ = try await waiting.value }
    }
}
