import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets

/// The second operation differs from the first, and is not affected by any state of the first.
@Suite(.timeLimit(.patient)) struct SecondOperationTests {
    /// Reads in the task of a scope share a waiter.
    @Test(arguments: [false, true]) func eachReadOfAScopeHasItsOwnTime(isSecure: Bool) async throws {
        let mayGoOn = try TestSignal()
        let peer = try ScriptedPeer.listening(
            (isSecure ? [.startTLS(try TestCertificates.server())] : []) + [
                .send("first"), .wait(for: mayGoOn), .send("last"), .expectEnd,
            ])
        let settings = isSecure ? try TestCertificates.client() : nil
        try await untilStopped(peer) {
            try await AsyncSocket.withConnection(to: "127.0.0.1", port: peer.port, tls: settings) { socket in
                #expect(try await socket.read(exactly: 5, timeout: .patient) == Data("first"))
                for seconds in [0.02, 0.05] {
                    #expect(
                        await outcome { try await socket.read(exactly: 4, timeout: .seconds(seconds)) } == .failed(.readTimeout))
                }
                // Without a timeout, it is still waiting long after the timeouts of the earlier reads.
                let clock = ContinuousClock()
                let beginning = clock.now
                let helper = Task {
                    try await eventually("time passes") { clock.now - beginning > .milliseconds(200) }
                    mayGoOn.fire()
                }
                #expect(try await socket.read(exactly: 4) == Data("last"))
                try await helper.value
            }
        }
        _ = try await peer.finish()
    }

    @Test func afterACancelledReadTheNextHasATime() async throws {
        let (socket, peer) = try await connectedSocket([.wait(for: try TestSignal())])
        for _ in 0..<3 {
            let cancelled = Task.immediate { try await socket.read(timeout: .patient) }
            cancelled.cancel()
            #expect(await cancelled.outcome == .cancelled)
            let late = await outcome {
                try await withDeadline(.patient) { try await socket.read(timeout: .milliseconds(10)) }
            }
            #expect(late == .failed(.readTimeout))
        }
        // A delegate's read after a task's cancelled read.
        let recorder = Recorder()
        socket.setInlineDelegate(recorder)
        let cancelled = Task.immediate { try await socket.read() }
        socket.readData(withTimeout: 0.05, tag: 1)
        cancelled.cancel()
        let error = try await untilStopped(peer) { try await recorder.disconnected() }
        #expect(error?.code == .readTimeout)
        peer.stop()
    }

    /// Reads behind it are added and cancelled, and its own timer continues.
    @Test func aCancelledReadLeavesTheClockOfTheOneBeforeIt() async throws {
        let (socket, peer) = try await connectedSocket([.wait(for: try TestSignal())])
        let recorder = Recorder()
        socket.setInlineDelegate(recorder)
        socket.readData(withTimeout: 0.1, tag: 1)
        let start = ContinuousClock.now
        while socket.isConnected, start.duration(to: .now) < .patient {
            let behind = Task.immediate { try await socket.read() }
            behind.cancel()
            _ = await behind.result
        }
        #expect(!socket.isConnected)
        socket.disconnect()
        #expect(try await recorder.disconnected()?.code == .readTimeout)
        peer.stop()
    }

    // MARK: - Frames

    private func frames(_ texts: [String], maxLength: Int = 1 << 20) async throws -> [String] {
        let peer = try ScriptedPeer.listening(
            texts.flatMap { [ScriptedPeer.Step.send($0)] } + [.finish])
        let socket = AsyncSocket()
        try await socket.connect(to: "127.0.0.1", port: peer.port)
        var frames: [String] = []
        for try await frame in socket.frames(Delimited(by: Data("\r\n"), maxLength: maxLength)) {
            frames.append(String(decoding: frame, as: UTF8.self))
        }
        _ = try await peer.finish()
        return frames
    }

    /// The part of a long frame that was already searched does not apply to the next frame.
    @Test func aShortFrameFollowsALongPartialOne() async throws {
        let long = String(repeating: "x", count: 300_000)
        #expect(try await frames([long, "\r\na\r\nb\r\n"]) == [long, "a", "b"])
        #expect(try await frames([long, long, "\r", "\n", "a\r\n", long + "\r\n"]) == [long + long, "a", long])
    }

    /// A delimiter that is split into two segments at every position.
    @Test func aDelimiterMayComeInTwoPieces() async throws {
        let text = "one\r\ntwo\r\r\nthree\r\n"
        for place in 1..<text.utf8.count {
            let bytes = Array(text.utf8)
            let signal = try TestSignal()
            let peer = try ScriptedPeer.listening([
                .send(Array(bytes[..<place])), .wait(for: signal), .send(Array(bytes[place...])), .finish,
            ])
            let socket = AsyncSocket()
            try await socket.connect(to: "127.0.0.1", port: peer.port)
            let framing = Delimited(by: Data("\r\n"))
            var received: [Data] = []
            let complete = text.utf8.prefix(place).split(separator: 10, omittingEmptySubsequences: false).count - 1
            for _ in 0..<complete { received.append(try #require(await socket.readFrame(framing))) }
            // The read has searched the first piece before the second one arrives.
            let last = Task.immediate {
                var rest: [Data] = []
                while let frame = try await socket.readFrame(framing) { rest.append(frame) }
                return rest
            }
            try await eventually("it has looked") { socket.readProgress != nil }
            signal.fire()
            received += try await last.value
            #expect(received == ["one", "two\r", "three"].map { Data($0) }, "\(place)")
            _ = try await peer.finish()
        }
    }

    // MARK: - Missing decisions

    /// A delegate that is released before the trust callback has not accepted the peer.
    @Test(arguments: [true, false]) func withoutADelegateNoOneIsTrusted(isServer: Bool) async throws {
        var (client, server) = try TestCertificates.mutual()
        if isServer { server.trustEvaluation = .delegate } else { client.trustEvaluation = .delegate }
        let listener = try RawSocket.listening()
        let asking = AsyncSocket()
        var recorder: Recorder? = Recorder()
        if let recorder { asking.setInlineDelegate(recorder) }
        try await asking.connect(to: "127.0.0.1", port: listener.localPort)
        let accepted = try AsyncSocket(adopting: listener.accepted().duplicate())
        try asking.beginTLS(settings: TLSClientSettings(isServer ? server.values : client.values))
        recorder = nil
        let outcome = await outcome {
            try await withDeadline(.patient) {
                try await accepted.startTLS(settings: TLSClientSettings(isServer ? client.values : server.values))
                // In TLS 1.3, a client completes its handshake before the server has evaluated it.
                _ = try await accepted.read(exactly: 1)
            }
        }
        // Otherwise the following wait would not end.
        try #require(outcome == .failed(.tls))
        try await eventually("it has ended") { !asking.isConnected }
        #expect(!asking.isSecure)
    }

    /// One permit for handshakes and headers, and clients that fail to use it.
    @Test(arguments: [false, true]) func aFailedHandshakeGivesItsPlaceBack(hasHeader: Bool) async throws {
        let listener = try SocketListener(
            port: 0, interface: "127.0.0.1", tls: TestCertificates.server(),
            proxyProtocol: hasHeader ? .required(from: .anyone, timeout: .patient) : nil)
        listener.maximumHandshakes = 1
        let header = Data(try ProxyHeader.local.encoded(as: .version1))
        try await serving(listener, { try await $0.write("hello") }) { _ in
            for round in 0..<6 {
                let bad = try RawSocket.connected(to: .loopback(port: listener.localPort), waitLimit: .patient)
                if hasHeader, round % 3 == 2 { try bad.send(header) }
                if round % 3 > 0 { try bad.send("GET / HTTP/1.1\r\n\r\n") } else { bad.finish() }
                _ = try? bad.receiveAll()
                let socket = AsyncSocket()
                try await withDeadline(.patient) {
                    try await socket.connect(to: "127.0.0.1", port: listener.localPort)
                    if hasHeader { try await socket.write(header) }
                    try await socket.startTLS(settings: TestCertificates.client())
                    #expect(try await socket.read(exactly: 5) == Data("hello"))
                }
                socket.disconnect()
            }
        }
    }
}
