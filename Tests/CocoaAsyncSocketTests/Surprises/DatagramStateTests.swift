import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Each pair of calls on a new UDP socket. The states of GCDAsyncUdpSocket are flags: its descriptors are
/// created, bound and connected separately.
@Suite(.timeLimit(.patient)) struct DatagramStateTests {
    enum Call: String, CaseIterable, Sendable {
        case enableBroadcast, enableReusePort, sendIPv4Multicast, bindToPort, bindToAddress, connectToHost, connectToAddress
        case send, sendToHost, sendToAddress, joinGroup, leaveGroup, beginReceiving, receiveOnce, pauseReceiving, close
        case closeAfterSending
    }

    /// One row for each first call, with one column for each second call, in the order of `Call`.
    ///
    /// The first character is the result: `.` success, an error (`messages`), or the callback: `c` connected,
    /// `s` sent, `n` not sent, `x` closed. The second character is the state afterwards: `-` closed, `0` not
    /// bound, `2` bound, `4` bound for IPv4 only, `p` connected to a peer.
    ///
    /// One result differs from GCDAsyncUdpSocket, which closes its IPv6 descriptor when it joins an IPv4
    /// group: the state after `joinGroup` is `2` where GCDAsyncUdpSocket has `4`.
    private static let table = CallTable<Call>(
        """
        nothing           .0 .0 .0 .2 .4 cp cp n0 s2 s2 B- B- R- R- .- .- .-
        enableBroadcast   .0 .0 .0 .2 .2 cp cp n0 s2 s2 B0 B0 .0 .0 .0 x- x-
        enableReusePort   .0 .0 .0 .2 .2 cp cp n0 s2 s2 B0 B0 .0 .0 .0 x- x-
        sendIPv4Multicast .0 .0 .0 .2 .2 cp cp n0 s2 s2 B0 B0 .0 .0 .0 x- x-
        bindToPort        .2 .2 .2 T2 T2 cp cp n2 s2 s2 .2 P2 .2 .2 .2 x- x-
        bindToAddress     .4 .4 .4 T4 T4 cp cp n4 s4 s4 .4 P4 .4 .4 .4 x- x-
        connectToHost     .p .p .p Tp Tp Kp Kp sp np sp Jp Jp .p .p .p x- x-
        connectToAddress  .p .p .p Tp Tp Kp Kp sp np sp Jp Jp .p .p .p x- x-
        send              .0 .0 .0 .2 .2 cp cp n0 s2 s2 B0 B0 .0 .0 .0 x- x-
        sendToHost        .2 .2 .2 T2 T2 cp cp n2 s2 s2 .2 P2 .2 .2 .2 x- x-
        sendToAddress     .2 .2 .2 T2 T2 cp cp n2 s2 s2 .2 P2 .2 .2 .2 x- x-
        joinGroup         .0 .0 .0 .2 .4 cp cp n0 s2 s2 B- B- R- R- .- .- .-
        leaveGroup        .0 .0 .0 .2 .4 cp cp n0 s2 s2 B- B- R- R- .- .- .-
        beginReceiving    .0 .0 .0 .2 .4 cp cp n0 s2 s2 B- B- R- R- .- .- .-
        receiveOnce       .0 .0 .0 .2 .4 cp cp n0 s2 s2 B- B- R- R- .- .- .-
        pauseReceiving    .0 .0 .0 .2 .4 cp cp n0 s2 s2 B- B- R- R- .- .- .-
        close             .0 .0 .0 .2 .4 cp cp n0 s2 s2 B- B- R- R- .- .- .-
        closeAfterSending .0 .0 .0 .2 .4 cp cp n0 s2 s2 B- B- R- R- .- .- .-
        """)

    // Not in parallel: hundreds of sockets would be open at the same time.
    @Test(.serialized, arguments: Call.allCases, Call.allCases)
    func eachPairOfCallsHasTheResultsOfGCDAsyncUdpSocket(_ first: Call, _ second: Call) async throws {
        let bench = try DatagramBench()
        let cells = try await [bench.cell(of: first), bench.cell(of: second)]
        #expect(try cells == Self.table.expected(first, second))
        bench.socket.close()
    }
}

/// A new socket, and a bound socket that receives its datagrams.
private struct DatagramBench {
    let pair: Pair
    let peer: Data
    var socket: GCDAsyncUdpSocket { pair.near }

    private static let group = "239.255.42.97"
    private static let messages = [
        "Cannot bind a socket more than once.": "T",
        "Cannot bind after connecting. If needed, bind first, then connect.": "L",
        "Cannot connect a socket more than once.": "K",
        "Must bind a socket before joining a multicast group.": "B",
        "Cannot join a multicast group if connected.": "J",
        "Must bind socket before you can receive data. "
            + "You can do this explicitly via bind, or implicitly via connect or by sending data.": "R",
    ]

    init() throws {
        pair = try Pair()
        peer = pair.far.localAddress() ?? Data()
    }

    private func make(_ call: DatagramStateTests.Call) throws {
        let (data, port) = (Data("x".utf8), pair.far.localPort())
        switch call {
        case .enableBroadcast: try socket.enableBroadcast(true)
        case .enableReusePort: try socket.enableReusePort(true)
        case .sendIPv4Multicast: try socket.sendIPv4Multicast(onInterface: "127.0.0.1")
        case .bindToPort: try socket.bind(toPort: 0)
        case .bindToAddress: try socket.bind(toAddress: anyPort())
        case .connectToHost: try socket.connect(toHost: "127.0.0.1", onPort: port)
        case .connectToAddress: try socket.connect(toAddress: peer)
        case .send: socket.send(data, withTimeout: -1, tag: 1)
        case .sendToHost: socket.send(data, toHost: "127.0.0.1", port: port, withTimeout: -1, tag: 1)
        case .sendToAddress: socket.send(data, toAddress: peer, withTimeout: -1, tag: 1)
        case .joinGroup: try socket.joinMulticastGroup(Self.group, onInterface: "127.0.0.1")
        case .leaveGroup: try socket.leaveMulticastGroup(Self.group, onInterface: "127.0.0.1")
        case .beginReceiving: try socket.beginReceiving()
        case .receiveOnce: try socket.receiveOnce()
        case .pauseReceiving: socket.pauseReceiving()
        case .close: socket.close()
        case .closeAfterSending: socket.closeAfterSending()
        }
    }

    private func anyPort() throws -> Data {
        try #require(try GCDAsyncSocket.lookupHost("127.0.0.1", port: 0)[0] as? Data)
    }

    /// Makes a call and, when it is complete, returns its cell of the table.
    func cell(of call: DatagramStateTests.Call) async throws -> String {
        let (count, wasOpen) = (pair.atNear.lines.count, !socket.isClosed())
        var result: String?
        do { try make(call) } catch { result = Self.letter(for: error as NSError) }
        switch call {
        case .connectToHost, .connectToAddress, .send, .sendToHost, .sendToAddress, .close, .closeAfterSending:
            let hasCallback = result == nil && (wasOpen || ![.close, .closeAfterSending].contains(call))
            if hasCallback { try await eventually("\(call) is complete") { pair.atNear.lines.count > count } }
        default: break
        }
        socket.perform {}
        socket.delegateQueue()?.sync {}
        let callbacks = pair.atNear.lines.dropFirst(count).map { $0.hasPrefix("closed") ? "x" : $0.prefix(1) }.joined()
        return (result ?? (callbacks.isEmpty ? "." : callbacks)) + state
    }

    private static func letter(for error: NSError) -> String {
        if error.domain == NSPOSIXErrorDomain { return "P" }
        let isMisuse =
            error.domain == GCDAsyncUdpSocketErrorDomain && error.code == GCDAsyncUdpSocketError.badConfigError.rawValue
        return isMisuse ? messages[error.localizedDescription] ?? error.localizedDescription : "\(error)"
    }

    /// The state that all getters agree on, or the values of the getters.
    private var state: String {
        let getters: [(String, Bool)] = [
            ("open", !socket.isClosed()), ("bound", socket.localPort() != 0), ("connected", socket.isConnected()),
            ("IPv4", socket.isIPv4()), ("IPv6", socket.isIPv6()), ("has an address", socket.localAddress() != nil),
            ("has an IPv4 address", socket.localAddress_IPv4() != nil), ("has a peer", socket.connectedAddress() == peer),
            ("has a peer's port", socket.connectedPort() == pair.far.localPort()),
        ]
        let description = getters.filter(\.1).map(\.0).joined(separator: ", ")
        return Self.states[description] ?? " (\(description))"
    }

    private static let states = [
        "IPv4, IPv6": "-", "open, IPv4, IPv6": "0", "open, bound, IPv4, IPv6, has an address, has an IPv4 address": "2",
        "open, bound, IPv4, has an address, has an IPv4 address": "4",
        "open, bound, connected, IPv4, has an address, has an IPv4 address, has a peer, has a peer's port": "p",
    ]
}
