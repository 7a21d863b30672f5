import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Each pair of calls on a new stream socket.
@Suite(.timeLimit(.patient)) struct StreamStateTests {
    enum Call: String, CaseIterable, Sendable {
        case acceptOnPort, acceptOnURL, connectToHost, connectToAddress, connectToURL, disconnect, disconnectAfterReading
        case disconnectAfterWriting, disconnectAfterReadingAndWriting, readData, write, startTLS
    }

    /// One row for each first call, with one column for each second call, in the order of `Call`.
    ///
    /// The first character is the result: `.` success, an error (`messages`), or the callback: `c` connected,
    /// `w` written, `x` disconnected without an error. The second character is the state afterwards: `-` not
    /// in use, `l` listening on a port, `u` listening on a path, `p` connected to a port, `q` connected to a
    /// path.
    private static let table = CallTable<Call>(
        """
        nothing                          .l .u cp cp cq .- .- .- .- .- .- .-
        acceptOnPort                     Al Al Cl Cl Cl x- x- x- x- .l .l .l
        acceptOnURL                      Au Au Cu Cu Cu x- x- x- x- .u .u .u
        connectToHost                    Ap Ap Cp Cp Cp x- x- x- x- .p wp .p
        connectToAddress                 Ap Ap Cp Cp Cp x- x- x- x- .p wp .p
        connectToURL                     Aq Aq Cq Cq Cq x- x- x- x- .q wq .q
        disconnect                       .l .u cp cp cq .- .- .- .- .- .- .-
        disconnectAfterReading           .l .u cp cp cq .- .- .- .- .- .- .-
        disconnectAfterWriting           .l .u cp cp cq .- .- .- .- .- .- .-
        disconnectAfterReadingAndWriting .l .u cp cp cq .- .- .- .- .- .- .-
        readData                         .l .u cp cp cq .- .- .- .- .- .- .-
        write                            .l .u cp cp cq .- .- .- .- .- .- .-
        startTLS                         .l .u cp cp cq .- .- .- .- .- .- .-
        """)

    // Not in parallel: hundreds of sockets would be open at the same time.
    @Test(.serialized, arguments: Call.allCases, Call.allCases)
    func eachPairOfCallsHasTheResultsOfGCDAsyncSocket(_ first: Call, _ second: Call) async throws {
        let bench = try StreamBench()
        let cells = try await [bench.cell(of: first), bench.cell(of: second)]
        #expect(try cells == Self.table.expected(first, second))
        bench.socket.disconnect()
    }
}

/// A new socket, and a listener on a port and another one on a path.
private final class StreamBench {
    let socket = GCDAsyncSocket()
    private let diary = Diary()
    private let queue = DispatchQueue(label: "delegate")
    private let (onPort, onPath) = (Diary(), Diary())
    private let listener: GCDAsyncSocket
    private let local: GCDAsyncSocket
    private let folder = FileManager.default.temporaryDirectory.appendingPathComponent("s" + UUID().uuidString.prefix(8))

    private static let messages = [
        "Attempting to accept while connected or accepting connections. Disconnect first.": "A",
        "Attempting to connect while connected or accepting connections. Disconnect first.": "C",
    ]

    init() throws {
        (listener, local) = (makeSocket(onPort), makeSocket(onPath))
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        try local.accept(on: folder.appendingPathComponent("peer"))
        socket.setDelegate(diary, delegateQueue: queue)
    }

    deinit {
        try? FileManager.default.removeItem(at: folder)
    }

    private func make(_ call: StreamStateTests.Call) throws {
        switch call {
        case .acceptOnPort: try socket.accept(onPort: 0)
        case .acceptOnURL: try socket.accept(on: folder.appendingPathComponent("own"))
        case .connectToHost: try socket.connect(toHost: "127.0.0.1", onPort: listener.localPort)
        case .connectToAddress: try socket.connect(toAddress: listener.localAddress ?? Data())
        case .connectToURL: try socket.connect(to: folder.appendingPathComponent("peer"), withTimeout: -1)
        case .disconnect: socket.disconnect()
        case .disconnectAfterReading: socket.disconnectAfterReading()
        case .disconnectAfterWriting: socket.disconnectAfterWriting()
        case .disconnectAfterReadingAndWriting: socket.disconnectAfterReadingAndWriting()
        case .readData: socket.readData(withTimeout: -1, tag: 1)
        case .write: socket.write(Data("x".utf8), withTimeout: -1, tag: 1)
        case .startTLS: socket.startTLS([GCDAsyncSocketSSLPeerName: "localhost" as NSString])
        }
    }

    /// Makes a call and, when it is complete, returns its cell of the table.
    func cell(of call: StreamStateTests.Call) async throws -> String {
        let (count, wasInUse, wasConnected) = (diary.lines.count, !socket.isDisconnected, socket.isConnected)
        var result: String?
        do { try make(call) } catch { result = Self.letter(for: error as NSError) }
        let hasCallback =
            switch call {
            case .connectToHost, .connectToAddress, .connectToURL: result == nil
            case .disconnect, .disconnectAfterReading, .disconnectAfterWriting, .disconnectAfterReadingAndWriting: wasInUse
            case .write: wasConnected
            case .acceptOnPort, .acceptOnURL, .readData, .startTLS: false
            }
        if hasCallback { try await eventually("\(call) is complete") { self.diary.lines.count > count } }
        socket.perform {}
        queue.sync {}
        let callbacks = diary.lines.dropFirst(count).map { line in
            line == "disconnected" ? diary.error.map { "\($0)" } ?? "x" : String(line.prefix(1))
        }
        return (result ?? (callbacks.isEmpty ? "." : callbacks.joined())) + state
    }

    private static func letter(for error: NSError) -> String {
        let isMisuse = error.domain == GCDAsyncSocketErrorDomain && error.code == GCDAsyncSocketError.badConfigError.rawValue
        return isMisuse ? messages[error.localizedDescription] ?? error.localizedDescription : "\(error)"
    }

    /// The state that all getters agree on, or the values of the getters.
    private var state: String {
        let getters: [(String, Bool)] = [
            ("in use", !socket.isDisconnected), ("connected", socket.isConnected), ("IPv4", socket.isIPv4),
            ("IPv6", socket.isIPv6), ("secure", socket.isSecure), ("local host", socket.localHost != nil),
            ("local port", socket.localPort != 0), ("peer", socket.connectedAddress == listener.localAddress),
            ("host", socket.connectedHost == "127.0.0.1"), ("port", socket.connectedPort == listener.localPort),
            ("URL", socket.connectedUrl == folder.appendingPathComponent("peer")),
        ]
        let description = getters.filter(\.1).map(\.0).joined(separator: ", ")
        return Self.states[description] ?? " (\(description))"
    }

    private static let states = [
        "": "-", "in use, IPv4, IPv6, local host, local port": "l", "in use": "u",
        "in use, connected, IPv4, local host, local port, peer, host, port": "p", "in use, connected, URL": "q",
    ]
}
