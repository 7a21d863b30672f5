import AsyncSocketsTesting
import Glibc
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import SocketCore

/// A kernel that has no buffer space or memory, or fails each call with an error. The sockets are real, and
/// the calls are rejected on their thread.
@Suite(.timeLimit(.patient), .ownThreads) struct DatagramPressureTests {
    private static let payloads = (0..<100).map { [UInt8](repeating: UInt8($0), count: 40 + $0 / 10) }

    private struct Parties: @unchecked Sendable {
        // Unchecked: one thread uses them at a time, because the test waits for the other thread.
        let (own, peer): (DatagramParty, DatagramParty)

        init() throws {
            var options = SocketOptionSet()
            try options.set(.receiveBufferSize, to: 1_000_000)
            (own, peer) = (try DatagramParty(), try DatagramParty(options: options))
        }
    }

    private struct Report: Equatable, Sendable {
        let handledCount: Int
        let errnos: [Int32]
        let positions: [Int]
        let rest: DatagramSendReport.Rest

        init(_ report: DatagramSendReport) {
            (handledCount, rest) = (report.handledCount, report.rest)
            (errnos, positions) = (report.failures.map(\.error.errno), report.failures.map(\.position))
        }
    }

    /// No datagram is sent or fails. All of them are sent later, in order.
    @Test(
        arguments: [
            (EAGAIN, DatagramSendReport.Rest.wouldBlock), (ENOBUFS, .exhausted), (ENOMEM, .exhausted),
        ], [1, 2, 100])
    func datagramsWaitUntilTheKernelHasRoom(refusal: (errno: Int32, rest: DatagramSendReport.Rest), count: Int) throws {
        let parties = try Parties()
        let payloads = Array(Self.payloads.prefix(count))
        let report = try refusing([.sendmsg, .sendmmsg], with: refusal.errno) {
            Report(parties.own.send(payloads, to: try parties.peer.address))
        }
        #expect(report.handledCount == 0 && report.errnos.isEmpty && report.rest == refusal.rest)
        #expect(!parties.peer.hasInput)
        #expect(parties.own.send(payloads, to: try parties.peer.address).isComplete(count))
        #expect(try parties.peer.take(count).map(\.bytes) == payloads)
    }

    /// Each datagram fails with the error, and no datagram is retried forever.
    @Test(arguments: [EPERM, EACCES, ECONNREFUSED, ENOSYS, EINVAL, EIO, EBADF, ENETUNREACH])
    func anErrorOfEachCallFailsEachDatagram(errno: Int32) throws {
        let parties = try Parties()
        let report = try refusing([.sendmsg, .sendmmsg], with: errno) {
            Report(parties.own.send(Self.payloads, to: try parties.peer.address))
        }
        #expect(report.handledCount == 100 && report.rest == .none)
        #expect(report.errnos == Array(repeating: errno, count: 100) && report.positions == Array(0..<100))
        #expect(!parties.peer.hasInput)
    }

    /// A system call filter may know sendmsg(2) but not sendmmsg(2).
    @Test(arguments: [ENOSYS, EPERM]) func withoutSendmmsgDatagramsAreSentOneByOne(errno: Int32) throws {
        let parties = try Parties()
        let isComplete = try refusing([.sendmmsg], with: errno) {
            let address = try parties.peer.address
            return (0..<2).allSatisfy { _ in parties.own.send(Self.payloads, to: address).isComplete(100) }
        }
        #expect(isComplete)
        #expect(try parties.peer.take(200).map(\.bytes) == Self.payloads + Self.payloads)
    }

    /// Datagrams that have arrived stay in the kernel.
    @Test(arguments: [EAGAIN, ENOBUFS, ENOMEM, EACCES, EPERM, EIO]) func aRefusedReceiveLosesNothing(errno: Int32) throws {
        let parties = try Parties()
        #expect(parties.own.send(Self.payloads, to: try parties.peer.address).isComplete(100))
        let isExpected = try refusing([.recvmmsg], with: errno) {
            switch (parties.peer.receiver.receive(from: parties.peer.descriptor), errno) {
            case (.wouldBlock, EAGAIN), (.exhausted, ENOBUFS), (.exhausted, ENOMEM): true
            case (.denied(let error, pause: 0.05, isFirst: true), EACCES),
                (.denied(let error, pause: 0.05, isFirst: true), EPERM),
                (.denied(let error, pause: 0.05, isFirst: true), EIO):
                error.errno == errno
            default: false
            }
        }
        #expect(isExpected)
        #expect(try parties.peer.take(100).map(\.bytes) == Self.payloads)
    }
}
