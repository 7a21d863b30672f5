import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct FilterAndMulticastTests {
    @Test func filteredSendsAreReportedAsSentAndContextsAreDelivered() async throws {
        let pair = try Pair()
        let queue = DispatchQueue(label: "filters")
        DatagramFilterSpellings.install(on: pair.near, queue)
        DatagramFilterSpellings.install(on: pair.far, queue)
        pair.send("unlucky", tag: 13)
        pair.send("-dropped", tag: 1)
        pair.send("kept", tag: 2)
        try await pair.atFar.wait(for: "received kept with mark")
        try await pair.atNear.wait(for: "sent 2")
        #expect(pair.atNear.lines == ["sent 13", "sent 1", "sent 2"] && pair.atFar.lines == ["received kept with mark"])
        DatagramFilterSpellings.remove(from: pair.near)
        DatagramFilterSpellings.remove(from: pair.far)
        pair.send("unlucky", tag: 13)
        try await pair.atFar.wait(for: "received unlucky")
    }

    @Test func aFilterCanRunOnAGlobalQueue() async throws {
        let pair = try Pair()
        pair.far.setReceiveFilter({ data, _, _ in data.count == 2 }, with: .global(), isAsynchronous: true)
        for text in ["1", "22", "333", "44"] { pair.send(text) }
        try await pair.atFar.wait(for: "received 44")
        #expect(pair.atFar.lines == ["received 22", "received 44"])
    }

    /// As in service discovery: several sockets on one port, and one that queries all of them.
    @Test func allMembersOfAGroupReceiveADatagram() async throws {
        let diaries = [DatagramDiary(), DatagramDiary()]
        var members: [GCDAsyncUdpSocket] = []
        for diary in diaries {
            let member = GCDAsyncUdpSocket(delegate: diary, delegateQueue: DispatchQueue(label: "member"))
            member.setIPv6Enabled(false)
            try member.enableReusePort(true)
            try member.bind(toPort: members.first?.localPort() ?? 0)
            try member.joinMulticastGroup("239.255.42.99", onInterface: "127.0.0.1")
            try member.beginReceiving()
            members.append(member)
        }
        let pair = try Pair()
        pair.near.setIPv6Enabled(false)
        try pair.near.bind(toPort: 0)
        try pair.near.sendIPv4Multicast(onInterface: "127.0.0.1")
        #expect(throws: GCDAsyncUdpSocketError.self) { try pair.near.sendIPv6Multicast(onInterface: "lo") }
        pair.near.send(
            Data("anyone?".utf8), toHost: "239.255.42.99", port: members[0].localPort(), withTimeout: -1, tag: 1)
        for diary in diaries { try await diary.wait(for: "received anyone?") }
        try members[0].leaveMulticastGroup("239.255.42.99", onInterface: "127.0.0.1")
        #expect(throws: (any Error).self) { try members[0].leaveMulticastGroup("239.255.42.99") }
        #expect(throws: (any Error).self) { try members[0].joinMulticastGroup("127.0.0.1") }
    }
}
