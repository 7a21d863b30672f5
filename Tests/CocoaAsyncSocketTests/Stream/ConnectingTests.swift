import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@Suite(.timeLimit(.patient)) struct ConnectingTests {
    private func code(_ body: () throws -> Void) -> GCDAsyncSocketError.Code? {
        do { try body() } catch { return (error as? GCDAsyncSocketError)?.code }
        return nil
    }

    @Test func allVariantsOfConnectWork() async throws {
        let address = try #require(try GCDAsyncSocket.lookupHost("127.0.0.1", port: 1)[0] as? Data)
        let forms: [(GCDAsyncSocket, UInt16, Data) throws -> Void] = [
            { socket, port, _ in try socket.connect(toHost: "127.0.0.1", onPort: port) },
            // As created from the buffer of inet_ntop(3).
            { socket, port, _ in try socket.connect(toHost: "127.0.0.1\0\0\0", onPort: port) },
            { socket, port, _ in try socket.connect(toHost: "localhost", onPort: port, withTimeout: .patient) },
            { socket, port, _ in try socket.connect(toHost: "127.0.0.1", onPort: port, viaInterface: "lo", withTimeout: -1) },
            { socket, _, address in try socket.connect(toAddress: address) },
            { socket, _, address in try socket.connect(toAddress: address, withTimeout: .patient) },
            { socket, _, address in try socket.connect(toAddress: address, viaInterface: "127.0.0.1", withTimeout: -1) },
        ]
        for form in forms {
            let peer = try ScriptedPeer.listening([.expect("hello")])
            let diary = Diary()
            let socket = makeSocket(diary)
            try form(socket, peer.port, withPort(peer.port, address))
            // Requests before the connection is established wait for it.
            socket.write(Data("hello".utf8), withTimeout: -1, tag: 3)
            try await diary.wait(for: "wrote 3")
            #expect(diary.lines == ["connected to 127.0.0.1", "wrote 3"])
            #expect(socket.connectedHost == "127.0.0.1" && socket.connectedPort == peer.port)
            _ = try await peer.finish()
        }
    }

    @Test func aZeroByteInsideAHostIsRefused() throws {
        let socket = makeSocket(Diary())
        for host in ["127.0.0.1\0.example", "\0localhost"] {
            #expect(throws: GCDAsyncSocketError.self) { try socket.connect(toHost: host, onPort: 9) }
            #expect(throws: (any Error).self) { try GCDAsyncSocket.lookupHost(host, port: 9) }
        }
        #expect(code { try socket.connect(toHost: "\0\0", onPort: 9) } == .badParamError)
        #expect(try GCDAsyncSocket.lookupHost("127.0.0.1\0", port: 9).count == 1)
    }

    private func withPort(_ port: UInt16, _ address: Data) -> Data {
        var address = address
        (address[2], address[3]) = (UInt8(port >> 8), UInt8(port & 0xFF))
        return address
    }

    @Test func bothEndsReportLocalAndRemoteAddresses() async throws {
        let wire = try await Wire.make()
        let (client, server) = (wire.client, wire.server)
        #expect(client.localPort == server.connectedPort && client.connectedPort == server.localPort)
        #expect(client.localAddress == server.connectedAddress && client.connectedAddress == server.localAddress)
        #expect(client.localHost == "127.0.0.1" && server.connectedHost == "127.0.0.1" && client.connectedUrl == nil)
        #expect(client.isConnected && server.isConnected && !client.isDisconnected && wire.listener.localPort == server.localPort)
    }

    @Test func fileURLsWorkForListeningAndConnecting() async throws {
        let url = FileManager.default.temporaryDirectory.appendingPathComponent("c-" + UUID().uuidString.prefix(8))
        let (atListener, atClient) = (Diary(), Diary())
        let listener = makeSocket(atListener)
        try listener.accept(on: url)
        let client = makeSocket(atClient)
        try client.connect(to: url, withTimeout: .patient)
        try await atClient.wait(for: "connected to \(url.lastPathComponent)")
        try await atListener.wait(for: "accepted")
        #expect(client.connectedUrl?.path == url.path && client.connectedHost == nil && client.connectedPort == 0)
        #expect(!client.isIPv4 && !client.isIPv6 && atClient.lines.count == 1)
        client.write(Data("over a file".utf8), withTimeout: -1, tag: 0)
        let server = atListener.accepted[0]
        server.readData(toLength: 11, withTimeout: -1, tag: 2)
        try await atListener.wait(for: "read 2: over a file")
        listener.disconnect()
        try await eventually("the file is gone") { !FileManager.default.fileExists(atPath: url.path) }
    }

    @Test func d15AListenerDoesNotDeleteAnExistingFile() throws {
        let url = FileManager.default.temporaryDirectory.appendingPathComponent("c-" + UUID().uuidString.prefix(8))
        try Data("precious".utf8).write(to: url)
        defer { try? FileManager.default.removeItem(at: url) }
        let diary = Diary()
        let listener = makeSocket(diary)
        let error = #expect(throws: (any Error).self) { try listener.accept(on: url) }
        #expect((error as NSError?)?.domain == NSPOSIXErrorDomain && (error as NSError?)?.code == Int(EADDRINUSE))
        #expect(try Data(contentsOf: url) == Data("precious".utf8))
        let long = URL(fileURLWithPath: "/tmp/" + String(repeating: "x", count: 200))
        #expect(code { try listener.accept(on: long) } == .badParamError)
    }

    @Test func d14AdoptingADescriptorOnItsQueuesDoesNotDeadlock() async throws {
        var ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        defer { close(ends[1]) }
        let (queue, diary) = (DispatchQueue(label: "both"), Diary())
        let descriptor = ends[0]
        let socket = try queue.sync {
            try GCDAsyncSocket(fromConnectedSocketFD: descriptor, delegate: diary, delegateQueue: queue, socketQueue: queue)
        }
        #expect(write(ends[1], "hi", 2) == 2)
        socket.readData(toLength: 2, withTimeout: -1, tag: 1)
        try await diary.wait(for: "read 1: hi")
    }

    @Test func anAdoptedSocketIsConnectedImmediately() async throws {
        var ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let diary = Diary()
        let (queue, socketQueue) = (DispatchQueue(label: "delegate"), DispatchQueue(label: "socket"))
        let socket = try GCDAsyncSocket(
            fromConnectedSocketFD: ends[0], delegate: diary, delegateQueue: queue, socketQueue: socketQueue)
        let other = try GCDAsyncSocket(fromConnectedSocketFD: ends[1], socketQueue: nil)
        #expect(socket.isConnected && other.isConnected)
        other.write(Data("adopted".utf8), withTimeout: -1, tag: 0)
        socket.readData(toLength: 7, withTimeout: -1, tag: 1)
        try await diary.wait(for: "read 1: adopted")
        other.disconnect()
        socket.readData(withTimeout: -1, tag: 2)
        #expect((try await diary.end() as (any Error)? as? GCDAsyncSocketError)?.code == .closedError)
    }

    @Test func aConnectionThatHasAlreadyClosedCanBeAdopted() async throws {
        for _ in 0..<50 {
            var ends: [Int32] = [0, 0]
            #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
            close(ends[1])
            let diary = Diary()
            diary.reaction = { _, socket in _ = socket.isConnected }
            let socket = try GCDAsyncSocket(
                fromConnectedSocketFD: ends[0], delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
            socket.readData(withTimeout: -1, tag: 1)
            #expect(Spellings.isClosed(try await diary.end()).byCast)
        }
    }

    @Test func aDescriptorThatIsNotAConnectionCannotBeAdopted() throws {
        var pipes: [Int32] = [0, 0]
        #expect(pipe(&pipes) == 0)
        defer { for end in pipes { close(end) } }
        let refused = code { _ = try GCDAsyncSocket(fromConnectedSocketFD: pipes[0], delegate: nil, delegateQueue: nil) }
        #expect(refused == .badParamError)
        // The descriptor is left unchanged.
        #expect(fcntl(pipes[0], F_GETFD) >= 0)
    }

    @Test func connectingRequiresADelegateAQueueAndAnEnabledFamily() {
        let socket = GCDAsyncSocket()
        #expect(code { try socket.connect(toHost: "127.0.0.1", onPort: 1) } == .badConfigError)
        let diary = Diary()
        socket.delegate = diary
        #expect(code { try socket.connect(toHost: "127.0.0.1", onPort: 1) } == .badConfigError)
        #expect(code { try socket.accept(onPort: 0) } == .badConfigError)
        socket.delegateQueue = DispatchQueue(label: "delegate")
        (socket.isIPv4Enabled, socket.isIPv6Enabled) = (false, false)
        #expect(code { try socket.connect(toHost: "127.0.0.1", onPort: 1) } == .badConfigError)
        socket.isIPv4Enabled = true
        #expect(code { try socket.connect(toHost: "", onPort: 1) } == .badParamError)
        #expect(code { try socket.connect(toAddress: Data([1, 2, 3])) } == .badParamError)
        #expect(
            code { try socket.connect(toHost: "127.0.0.1", onPort: 1, viaInterface: "nothing0", withTimeout: 1) }
                == .badParamError)
        #expect(socket.isDisconnected && diary.lines.isEmpty)
    }

    @Test func aSocketInUseCannotConnectAgain() throws {
        let (listener, diary) = try Wire.listening()
        withExtendedLifetime(diary) {
            #expect(code { try listener.connect(toHost: "127.0.0.1", onPort: 1) } == .badConfigError)
            #expect(code { try listener.accept(onPort: 0) } == .badConfigError)
            #expect(!listener.isDisconnected && !listener.isConnected && listener.isIPv4 && !listener.isIPv6)
        }
    }

    @Test func aRefusedConnectionIsAPOSIXError() async throws {
        let refusing = try RawSocket.refusing()
        let diary = Diary()
        let socket = makeSocket(diary)
        try socket.connect(toHost: "127.0.0.1", onPort: refusing.localPort, withTimeout: .patient)
        let error = try #require(try await diary.end())
        #expect(error.domain == NSPOSIXErrorDomain && error.code == Int(ECONNREFUSED))
        #expect(error.localizedDescription == "Connection refused")
    }

    @Test func connectingToAnUnknownHostIsANetDBError() async throws {
        let diary = Diary()
        let socket = makeSocket(diary)
        try socket.connect(toHost: "nothing.invalid", onPort: 80)
        #expect(try await diary.end()?.domain == "kCFStreamErrorDomainNetDB")
    }

    @Test func settingsHaveDefaultsAndCanBeChanged() {
        let socket = GCDAsyncSocket()
        #expect(socket.isIPv4Enabled && socket.isIPv6Enabled && socket.isIPv4PreferredOverIPv6)
        #expect(socket.alternateAddressDelay == 0.3 && socket.autoDisconnectOnClosedReadStream)
        socket.isIPv4PreferredOverIPv6 = false
        socket.alternateAddressDelay = 2
        socket.userData = ["any": NSObject()]
        #expect(!socket.isIPv4PreferredOverIPv6 && socket.alternateAddressDelay == 2 && socket.userData is [String: NSObject])
    }

    @Test func d2ADisabledAddressFamilyIsNotUsed() async throws {
        let (listener, atListener) = try Wire.listening()
        let diary = Diary()
        let socket = makeSocket(diary)
        socket.isIPv4Enabled = false
        // localhost resolves to both families, and the listener supports only IPv4.
        try socket.connect(toHost: "localhost", onPort: listener.localPort)
        #expect(try await diary.end()?.domain == NSPOSIXErrorDomain)
        #expect(atListener.lines.isEmpty)
    }
}
