internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Foundation
internal import Glibc
internal import SocketTestSupport

/// UDP and DTLS over a router whose links have a smaller MTU than those of the two machines: 600 bytes for
/// IPv4 and 1,280 for IPv6. The server is a separate process in another network namespace.
enum PathProbe {
    private static let (securePort, plainPort): (UInt16, UInt16) = (4433, 4434)
    /// The path MTU without the UDP and IP headers.
    private static let (ipv4Size, ipv6Size) = (600 - 28, 1_280 - 48)
    private static let question = Data("?".utf8)
    /// More than the path MTU and less than the MTU of the first link.
    private static let tooMuch = 1_300

    private static func wait(_ body: @escaping @Sendable () async throws -> Void) throws {
        let (done, outcome) = (DispatchSemaphore(value: 0), Mailbox<String?>())
        Task {
            do {
                try await body()
                outcome.put(nil)
            } catch {
                outcome.put("\(error)")
            }
            done.signal()
        }
        guard done.wait(timeout: .now() + 900) == .success else { throw ProbeFailure(description: "it took too long") }
        if let failure = try outcome.next() { throw ProbeFailure(description: failure) }
    }

    private static func expect(_ condition: Bool, _ what: @autoclosure () -> String) throws {
        guard condition else { throw ProbeFailure(description: what()) }
    }

    // MARK: - The server

    /// Serves until it is killed. Prints when it is ready, and which files its client needs.
    ///
    /// - Parameter folder: The folder for the files.
    static func runServer(_ folder: String) throws {
        let authority = try CertificateAuthority()
        // A chain of about 8 KB.
        let names = (0..<120).map { "a-name-that-makes-the-certificate-larger-\($0).example" }
        var settings = TLSSettings.server(identity: try authority.issue(.server(names: ["localhost"] + names)).identity())
        settings.clients = .certificates(.optional)
        settings.trustRoots = try authority.roots
        settings.minimumVersion = .dtls12
        settings.handshakeTimeout = .patient
        let secure = try DatagramListener(port: securePort, dtls: settings)
        let plain = try DatagramListener(port: plainPort, configure: { try $0.setOption(.pathMTUDiscovery, to: .always) })
        try authority.rootPEM.write(toFile: folder + "/roots.pem", atomically: true, encoding: .utf8)
        let files = try authority.issue(.client(commonName: "alice")).write(to: folder)
        print("\(folder)/roots.pem \(files.certificate) \(files.key)")
        fflush(nil)
        try wait {
            async let first: Void = secure.run { try await serve($0) }
            async let second: Void = plain.run { try await serve($0) }
            _ = try await (first, second)
        }
    }

    /// Echoes datagrams. On `question`, sends a datagram that exceeds the path MTU.
    private static func serve(_ socket: AsyncUDPSocket) async throws {
        for try await datagram in socket.datagrams {
            if datagram.data == question {
                let refusal = try await refusal(of: socket)
                try await socket.send(Data("\(refusal.errno ?? 0) \(refusal.message) \(socket.maximumSendSize ?? 0)".utf8))
            } else {
                try await socket.send(datagram.data)
            }
        }
    }

    // MARK: - Both sides

    /// Sends more than the path MTU. The kernel may detect the MTU with the first datagram, which is lost.
    private static func refusal(of socket: AsyncUDPSocket) async throws -> AsyncSocketError {
        let failures = try socket.deliveryFailures()
        do {
            try await socket.send(Data(count: tooMuch))
            for await failure in failures where failure.error.errno == EMSGSIZE { break }
            try await socket.send(Data(count: tooMuch))
        } catch let error as AsyncSocketError where error.errno == EMSGSIZE {
            return error
        }
        throw ProbeFailure(description: "\(tooMuch) bytes were sent twice")
    }

    // MARK: - The client

    /// - Parameter files: The roots, and the client's certificate and key.
    static func runClient(_ files: [String]) throws {
        guard files.count == 3 else { throw ProbeFailure(description: "name three files") }
        var settings = TLSSettings.client(serverName: "localhost")
        settings.trustRoots = .file(path: files[0])
        settings.minimumVersion = .dtls12
        settings.handshakeTimeout = .patient
        let anonymous = settings
        settings.identity = try TLSIdentity(certificateFile: files[1], privateKeyFile: files[2])
        let proven = settings
        try wait {
            // Each pair of addresses has its own path, whose MTU is initially unknown. Over IPv4, the
            // client's handshake messages are too large. Over IPv6, only its data is.
            try await visit("198.51.100.2", from: "192.0.2.1", ipv4Size, proven)
            try await visit("2001:db8:2::2", from: "2001:db8:1::1", ipv6Size, anonymous)
            try await visit("198.51.100.3", from: "192.0.2.3", ipv4Size, nil)
            try await visit("2001:db8:2::3", from: "2001:db8:1::3", ipv6Size, nil)
        }
        print("the path was found")
    }

    /// - Parameters:
    ///   - size: What the path carries.
    ///   - settings: Nil: plain datagrams.
    private static func visit(_ host: String, from own: String, _ size: Int, _ settings: TLSClientSettings?) async throws {
        let socket = AsyncUDPSocket()
        defer { socket.disconnect() }
        try socket.bind(toPort: 0, interface: own)
        try await socket.connect(to: host, port: settings == nil ? plainPort : securePort)
        if let settings {
            try await socket.startDTLS(settings: settings)
        } else {
            try socket.setOption(.pathMTUDiscovery, to: .always)
        }
        let refusal = try await refusal(of: socket)
        try expect(refusal.message.contains(host) || refusal.message.contains("maximumSendSize"), "\(refusal)")
        var largest = size
        if settings != nil {
            largest = socket.maximumSendSize ?? 0
            // A record has an overhead of at most 37 bytes.
            try expect((size - 37...size - 13).contains(largest), "\(host): \(largest) of \(size)")
        }
        try expect(socket.isOpen, "\(host): the socket has closed")
        try await exchange(Data(count: largest), socket)
        // The other direction.
        let answer = try await exchange(question, socket)
        try expect(answer.hasPrefix("\(EMSGSIZE) "), "\(host): \(answer)")
        if settings != nil { try expect(answer.hasSuffix(" \(largest)"), "\(host): \(answer)") }
        try await exchange(Data("goodbye".utf8), socket)
    }

    /// Sends a datagram repeatedly until the reply arrives.
    @discardableResult
    private static func exchange(_ data: Data, _ socket: AsyncUDPSocket) async throws -> String {
        for _ in 0..<600 {
            try await socket.send(data)
            while let answer = try? await socket.receive(timeout: .seconds(1)).data {
                // Other datagrams are late replies to earlier ones.
                let isNumber = answer.first.map { (0x30...0x39).contains($0) } ?? false
                if answer == data || (isNumber && data == question) { return String(decoding: answer, as: UTF8.self) }
            }
        }
        throw ProbeFailure(description: "no answer to \(data.count) bytes")
    }
}
