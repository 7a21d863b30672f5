import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// A listener with a delegate at `maximumConnections`.
@Suite(.timeLimit(.patient)) struct FullDelegateListenerTests {
    @Test func aSilentConnectionGivesWay() async throws {
        let recorder = Recorder()
        let listener = AsyncSocket(inlineDelegate: recorder)
        listener.maximumConnections = 2
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let address = try #require(listener.localAddress)
        // Accepted while the listener is at most half full.
        let first = try RawSocket.connected(to: address)
        _ = try await recorder.accepted()
        let silent = try RawSocket.connected(to: address)
        _ = try await recorder.accepted()
        let late = try RawSocket.connected(to: address, from: "127.0.0.2")
        var (accepted, errors): (AsyncSocket?, [AsyncSocketError.Code?]) = (nil, [])
        while accepted == nil || errors.isEmpty {
            switch await recorder.next() {
            case .accepted(let socket): accepted = socket
            case .disconnected(let error): errors.append(error?.code)
            case let told: Issue.record("\(told)")
            }
        }
        #expect(errors == [.tooManyConnections])
        #expect(throws: LoopbackError.self) { try silent.receive() }
        accepted?.write(Data("served\n".utf8), withTimeout: .patient, tag: 0)
        #expect(try late.receive(atLeast: 7) == "served\n")
        listener.disconnect()
        withExtendedLifetime(first) {}
    }
}
