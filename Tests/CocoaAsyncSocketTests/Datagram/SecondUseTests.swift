import AsyncSockets
import CocoaClients
import Foundation
import SocketBuffers
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import CocoaAsyncSocket

/// A UDP socket that is opened again after it has closed. Each use has its own core, which inherits the
/// configuration and is released afterwards.
@Suite(.timeLimit(.patient)) struct SecondUseTests {
    private final class Cores {
        private struct Weak { weak var core: AsyncUDPSocket? }
        private var all: [Weak] = []

        func note(_ socket: GCDAsyncUdpSocket) { all.append(Weak(core: socket.core)) }
        var liveCount: Int { all.count { $0.core != nil } }
        var count: Int { Set(all.indices).count }
    }

    @Test(arguments: [true, false]) func noCoreOfAnEarlierUseIsLeft(hasQueue: Bool) async throws {
        let (diary, cores, rounds) = (DatagramDiary(), Cores(), 20)
        let queue = DispatchQueue(label: "delegate")
        let socket = GCDAsyncUdpSocket(delegate: diary, delegateQueue: queue)
        for _ in 0..<rounds {
            if !hasQueue { socket.setDelegateQueue(queue) }
            try socket.bind(toPort: 0, interface: "127.0.0.1")
            cores.note(socket)
            if !hasQueue { socket.setDelegateQueue(nil) }
            socket.close()
        }
        if hasQueue { try await eventually("all closes are delivered") { diary.lines.filter { $0 == "closed" }.count == rounds } }
        socket.setDelegateQueue(queue)
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        cores.note(socket)
        try await eventually("the earlier cores are released") { cores.liveCount == 1 }
        #expect(cores.count == rounds + 1)
        socket.close()
    }

    /// The close of the first use is delivered after the second use has begun.
    @Test func aCoreIsKeptUntilItsEndIsDelivered() async throws {
        let (diary, cores) = (DatagramDiary(), Cores())
        let queue = DispatchQueue(label: "delegate")
        let socket = GCDAsyncUdpSocket(delegate: diary, delegateQueue: queue)
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        cores.note(socket)
        queue.suspend()
        socket.close()
        try socket.bind(toPort: 0, interface: "127.0.0.1")
        cores.note(socket)
        #expect(cores.liveCount == 2)
        queue.resume()
        try await diary.wait(for: "closed")
        try await eventually("the first core is released") { cores.liveCount == 1 }
        socket.close()
    }

    /// The sessions of a limited number of peers are kept, and the oldest are dropped first.
    @Test func theSessionsOfTheOldestPeerAreDropped() {
        func peer(_ number: Int) -> Data { Data("SecondUseTests \(number)".utf8) }
        let sessions = PeerSessions()
        let first = sessions.store(for: peer(0))
        #expect(sessions.store(for: peer(0)) === first)
        for number in 1...64 { _ = sessions.store(for: peer(number)) }
        #expect(sessions.store(for: peer(0)) !== first)
    }

    /// The configuration applies to every later use.
    @Test func theConfigurationOutlivesAUse() async throws {
        let (diary, other) = (DatagramDiary(), DatagramDiary())
        let queue = DispatchQueue(label: "filter")
        let socket = GCDAsyncUdpSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
        let far = GCDAsyncUdpSocket(delegate: other, delegateQueue: DispatchQueue(label: "delegate"))
        try far.bind(toPort: 0, interface: "127.0.0.1")
        try far.beginReceiving()
        socket.setIPv6Enabled(false)
        socket.setPreferIPv6()
        socket.setMaxSendBufferSize(5_000)
        socket.setMaxReceiveIPv4BufferSize(3)
        DatagramFilterSpellings.install(on: socket, queue)
        for round in 1...3 {
            try socket.bind(toPort: 0)
            #expect(socket.localAddress_IPv6() == nil && socket.localAddress_IPv4() != nil)
            #expect(!socket.isIPv6Enabled() && socket.isIPv4Enabled() && socket.isIPv6Preferred() && !socket.isIPv4Preferred())
            // The kernel doubles the value (socket(7)).
            #expect(try socket.core.option(.sendBufferSize) == 10_000)
            try socket.beginReceiving()
            // The send filter drops this datagram. The receive filter marks or drops the replies.
            socket.send(Data("dropped".utf8), toHost: "127.0.0.1", port: far.localPort(), withTimeout: -1, tag: 13)
            socket.send(Data("round \(round)".utf8), toHost: "127.0.0.1", port: far.localPort(), withTimeout: -1, tag: round)
            try await other.wait(for: "received round \(round)")
            for text in ["-hidden", "\(round)..."] {
                far.send(Data(text.utf8), toHost: "127.0.0.1", port: socket.localPort(), withTimeout: -1, tag: 1)
            }
            try await diary.wait(for: "received \(round).. with mark")
            socket.close()
        }
        #expect(!other.has("received dropped") && !diary.lines.contains { $0.contains("-hi") })
        DatagramFilterSpellings.remove(from: socket)
        try socket.bind(toPort: 0)
        try socket.beginReceiving()
        far.send(Data("-free".utf8), toHost: "127.0.0.1", port: socket.localPort(), withTimeout: -1, tag: 1)
        try await diary.wait(for: "received -fr")
        socket.close()
        far.close()
    }

    // MARK: - Errors

    /// A host that does not exist, and a resolver that cannot be reached.
    @Test(arguments: [(TLSError.Fault.caller, EAI_NONAME), (.system, EAI_AGAIN)])
    func aLookupHasTheCodeOfItsCause(_ fault: TLSError.Fault, _ code: Int32) {
        let error = AsyncSocketError(.hostNotFound, fault: fault, operation: .resolve, message: "no such host")
        #expect((error.asDatagramError as NSError).code == Int(code))
    }

    // MARK: - Limits

    struct SizeCase: Sendable {
        let host: String
        let limit4: UInt16
        let limit6: UInt32
        let received: String
    }

    static let sizes = [
        SizeCase(host: "127.0.0.1", limit4: 5, limit6: 1, received: "12345"),
        SizeCase(host: "127.0.0.1", limit4: 4, limit6: 9, received: "1234"),
        SizeCase(host: "127.0.0.1", limit4: 0, limit6: 9, received: ""),
        SizeCase(host: "127.0.0.1", limit4: .max, limit6: 0, received: "12345"),
        SizeCase(host: "::1", limit4: 1, limit6: 5, received: "12345"),
        SizeCase(host: "::1", limit4: 9, limit6: 4, received: "1234"),
        SizeCase(host: "::1", limit4: 9, limit6: 0, received: ""),
        SizeCase(host: "::1", limit4: 0, limit6: .max, received: "12345"),
    ]

    /// Each version of IP has its own limit.
    @Test(arguments: sizes) func aDatagramIsCutAtTheLimitOfItsVersionOfIP(_ plan: SizeCase) async throws {
        let diary = DatagramDiary()
        let socket = GCDAsyncUdpSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
        socket.setMaxReceiveIPv4BufferSize(plan.limit4)
        socket.setMaxReceiveIPv6BufferSize(plan.limit6)
        #expect(socket.maxReceiveIPv4BufferSize() == plan.limit4 && socket.maxReceiveIPv6BufferSize() == plan.limit6)
        try socket.bind(toPort: 0, interface: plan.host)
        try socket.beginReceiving()
        let sender = GCDAsyncUdpSocket(delegate: diary, delegateQueue: DispatchQueue(label: "sender"))
        sender.send(Data("12345".utf8), toHost: plan.host, port: socket.localPort(), withTimeout: -0.5, tag: .min)
        try await diary.wait(for: "received \(plan.received)")
        try await diary.wait(for: "sent \(Int.min)")
        sender.close()
        socket.close()
    }
}
