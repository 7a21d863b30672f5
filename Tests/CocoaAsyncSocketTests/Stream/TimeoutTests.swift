import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct TimeoutTests {
    @Test func aReadTimesOutAfterTheDelegateDeclinesAnExtension() async throws {
        let wire = try await Wire.make()
        wire.server.write(Data("abc".utf8), withTimeout: -1, tag: 1)
        wire.client.readData(toLength: 3, withTimeout: -1, tag: 1)
        try await wire.atClient.wait(for: "read 1: abc")
        wire.client.readData(toLength: 3, withTimeout: 0.02, tag: 2)
        let error = try await wire.atClient.end()
        #expect(error?.code == GCDAsyncSocketError.readTimeoutError.rawValue)
        #expect(error?.localizedDescription == "Read operation timed out")
        #expect(Array(wire.atClient.lines.suffix(2)) == ["late read 2 with 0", "disconnected"])
    }

    @Test func theDelegateCanExtendAReadTimeoutTwice() async throws {
        let wire = try await Wire.make()
        wire.atClient.extraTimes = [0.01, .patient]
        wire.client.readData(toLength: 5, withTimeout: 0.01, tag: 7)
        try await eventually("the delegate was asked twice") {
            wire.atClient.lines.filter { $0 == "late read 7 with 0" }.count == 2
        }
        wire.server.write(Data("hello".utf8), withTimeout: -1, tag: 1)
        try await wire.atClient.wait(for: "read 7: hello")
        #expect(wire.client.isConnected)
    }

    @Test func aWriteTimesOutIfThePeerDoesNotRead() async throws {
        let wire = try await Wire.make()
        wire.atClient.extraTimes = [0.01]
        wire.client.write(Data(count: 64 << 20), withTimeout: 0.05, tag: 8)
        let error = try await wire.atClient.end()
        #expect(error?.code == GCDAsyncSocketError.writeTimeoutError.rawValue)
        #expect(wire.atClient.lines.filter { $0 == "late write 8" }.count == 2)
    }

    @Test func theClockOfAReadStartsWhenItIsTheFirst() async throws {
        let wire = try await Wire.make()
        wire.client.readData(toLength: 2, withTimeout: -1, tag: 1)
        // It would time out if its timeout started now.
        wire.client.readData(toLength: 2, withTimeout: .patient, tag: 2)
        wire.server.write(Data("abcd".utf8), withTimeout: -1, tag: 1)
        try await wire.atClient.wait(for: "read 2: cd")
        #expect(!wire.atClient.has(prefix: "late"))
    }

    @Test func aConnectionAttemptTimesOutIfThePeerDoesNotRespond() async throws {
        let full = try FullBacklog()
        let diary = Diary()
        let socket = makeSocket(diary)
        try socket.connect(toHost: "127.0.0.1", onPort: full.port, withTimeout: 0.05)
        let error = try await diary.end()
        #expect(error?.code == GCDAsyncSocketError.connectTimeoutError.rawValue)
        #expect(error?.localizedDescription == "Attempt to connect to host timed out")
        withExtendedLifetime(full) {}
    }
}
