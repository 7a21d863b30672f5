internal import AsyncSockets
internal import AsyncSocketsTesting
internal import CSeccomp
internal import Foundation
internal import SocketTestSupport

/// Uses parts of the library in an environment that lacks something. Prints a line for each part: `works`, or
/// the error that a program receives.
enum EnvironmentProbe {
    /// - Parameter arguments: The parts, and system calls that fail with an `errno`, as in `recvmmsg=38`.
    static func run(_ arguments: [String]) throws {
        for argument in arguments where argument.contains("=") { try refuse(argument) }
        for part in arguments where !part.contains("=") {
            do {
                try use(part)
                print("\(part): works")
            } catch let error as AsyncSocketError {
                print("\(part): \(error)")
            }
        }
    }

    private static func use(_ part: String) throws {
        switch part {
        case "streams": try waitForTask { try await streams() }
        case "file": try waitForTask { try await file() }
        case "unix": try waitForTask { try await unix() }
        case "datagrams": try DatagramExchange.run()
        case "dtls": try waitForTask { try await dtls() }
        case "client": try waitForTask { try await client() }
        case "interfaces": try waitForTask { try await interfaces() }
        case "interface-names": _ = try SocketListener(port: 0, interface: "lo")
        case "ipv6": try waitForTask { try await AsyncSocket().connect(to: "::1", port: 1) }
        case "ipv6-listener": _ = try SocketListener(port: 0, interface: "::1")
        case "ipv6-datagrams": try AsyncUDPSocket().bind(toPort: 0, interface: "::1")
        case "system-roots": try waitForTask { try await systemRoots() }
        case "key-log": try waitForTask { try await streams(keyLogFile: "/key.log") }
        default: throw ProbeFailure(description: "there is no part \(part)")
        }
    }

    // MARK: - Streams

    private static func certificates() throws -> (server: TLSServerSettings, client: TLSClientSettings) {
        let authority = try CertificateAuthority()
        var client = TLSSettings.client(serverName: "localhost").patient
        client.trustRoots = try authority.roots
        return (TLSSettings.server(identity: try authority.issue(.server(names: ["localhost"])).identity()).patient, client)
    }

    /// Upgrades a connection to `localhost`, and echoes more data than the socket buffers hold.
    private static func streams(keyLogFile: String? = nil) async throws {
        var certificates = try certificates()
        certificates.client.keyLogFile = keyLogFile
        let server = certificates.server
        let listener = try SocketListener(port: 0)
        try await serving(listener) { socket in
            guard try await socket.readLine() == "STARTTLS" else { throw ProbeFailure(description: "another command") }
            try await socket.writeLine("OK")
            try await socket.startTLS(settings: server)
            for try await bytes in socket.chunks { try await socket.write(bytes) }
        } client: { [certificates] in
            try await AsyncSocket.withConnection(to: "localhost", port: listener.localPort, timeout: .patient) { socket in
                try await socket.writeLine("STARTTLS")
                guard try await socket.readLine() == "OK" else { throw ProbeFailure(description: "another reply") }
                try await socket.startTLS(settings: certificates.client)
                let text = [UInt8](repeating: 120, count: 2_000_000)
                async let writing: Void = socket.write(text)
                guard try await socket.read(exactly: text.count) == Data(text) else {
                    throw ProbeFailure(description: "another echo")
                }
                try await writing
            }
        }
    }

    /// Sends part of this program, which is on a file system that may be read-only.
    private static func file() async throws {
        let program = CommandLine.arguments[0], length = 300_001
        let listener = try SocketListener(port: 0, interface: "127.0.0.1")
        try await serving(listener) { socket in
            try await socket.write(contentsOfFile: program, offset: 5, length: length)
        } client: {
            let data = try await AsyncSocket.withConnection(to: "127.0.0.1", port: listener.localPort, timeout: .patient) {
                try await $0.readToEnd()
            }
            guard let file = FileHandle(forReadingAtPath: program), try file.read(upToCount: 5 + length)?.dropFirst(5) == data
            else { throw ProbeFailure(description: "another file") }
        }
    }

    /// Names the local addresses of listeners, connections and datagram sockets.
    private static func interfaces() async throws {
        for name in ["127.0.0.1", "localhost", "127.0.0.1:0"] {
            let listener = try SocketListener(port: 0, interface: name)
            try await serving(listener) { socket in
                try await socket.writeLine("hello")
            } client: {
                let socket = AsyncSocket()
                try await socket.connect(
                    to: "127.0.0.1", port: listener.localPort, interface: "127.0.0.1", timeout: .patient)
                guard try await socket.readLine() == "hello" else { throw ProbeFailure(description: "another line") }
            }
            let datagrams = AsyncUDPSocket()
            try datagrams.bind(toPort: 0, interface: name)
            datagrams.disconnect()
        }
    }

    private static func unix() async throws {
        let path = FileManager.default.temporaryDirectory.appending(path: "environment-\(getpid())").path
        let listener = try SocketListener(path: path)
        try await serving(listener) { socket in
            try await socket.writeLine("hello")
        } client: {
            let line = try await AsyncSocket.withConnection(toPath: path, timeout: .patient) { try await $0.readLine() }
            guard line == "hello" else { throw ProbeFailure(description: "another line") }
        }
    }

    /// The client trusts the system's authorities. The server's authority is not one of them.
    private static func systemRoots() async throws {
        let server = try certificates().server
        let listener = try SocketListener(port: 0, interface: "127.0.0.1", tls: server)
        try await serving(listener) { _ in
        } client: {
            let client = TLSSettings.client(serverName: "localhost").patient
            let socket = AsyncSocket()
            try await socket.connect(to: "127.0.0.1", port: listener.localPort, timeout: .patient)
            try await socket.startTLS(settings: client)
        }
    }

    /// A client that needs no certificate, with a server that sends nothing.
    private static func client() async throws {
        let server = try RawSocket.listening()
        let socket = AsyncSocket()
        try await socket.connect(to: server.localAddress, timeout: .patient)
        try await socket.startTLS(settings: TLSSettings.client(serverName: "localhost"))
        withExtendedLifetime(server) {}
    }

    private static func serving(
        _ listener: SocketListener, _ serve: @escaping @Sendable (AsyncSocket) async throws -> Void,
        client: () async throws -> Void
    ) async throws {
        let running = Task { try await listener.run(onError: { _, _ in }) { try await serve($0) } }
        do {
            try await client()
        } catch {
            await listener.close(timeout: .zero)
            throw error
        }
        await listener.close(timeout: .zero)
        try await running.value
    }

    // MARK: - Datagrams

    private static func dtls() async throws {
        let certificates = try certificates()
        let listener = try DatagramListener(port: 0, dtls: certificates.server, idleTimeout: .patient)
        let running = Task {
            try await listener.run(onError: { _, _ in }) { socket in
                for try await datagram in socket.datagrams { try await socket.send(datagram.data) }
            }
        }
        let client = AsyncUDPSocket()
        try await client.connect(to: "localhost", port: listener.localPort)
        try await client.startDTLS(settings: certificates.client)
        for size in [1, 1000, 8000] {
            try await client.send(Data(count: size))
            guard try await client.receive().data == Data(count: size) else { throw ProbeFailure(description: "another echo") }
        }
        client.disconnect()
        await listener.close(timeout: .zero)
        try await running.value
    }

    // MARK: - Refused calls

    /// - Parameter refusal: As in `recvmmsg=38`.
    private static func refuse(_ refusal: String) throws {
        let parts = refusal.split(separator: "=")
        guard parts.count == 2, let number = CInt(parts[1]) else { throw ProbeFailure(description: refusal) }
        switch parts[0] {
        case "recvmmsg": try RefusalProbe.refuse(CSeccomp_recvmmsg, number)
        case "sendmmsg": try RefusalProbe.refuse(CSeccomp_sendmmsg, number)
        case "getrandom": try RefusalProbe.refuse(CSeccomp_getrandom, number)
        case "sendfile": try RefusalProbe.refuse(CSeccomp_sendfile, number)
        // Calls that are newer than the oldest kernels in use. A system call filter may not know them.
        case "newer":
            for call in [
                CSeccomp_epoll_pwait2, CSeccomp_statx, CSeccomp_openat2, CSeccomp_faccessat2,
                CSeccomp_close_range, CSeccomp_memfd_create, CSeccomp_membarrier, CSeccomp_copy_file_range,
            ] { try RefusalProbe.refuse(call, number) }
        // Datagrams in runs (UDP GSO) and in coalesced buffers (UDP GRO).
        case "offload":
            try refuse(CSeccomp_getsockopt, argument: 1, CInt(CSeccomp_udp_level), number)
            try refuse(CSeccomp_setsockopt, argument: 1, CInt(CSeccomp_udp_level), number)
        case "ipv6": try refuse(CSeccomp_socket, argument: 0, AF_INET6, number)
        // The kernel's list of interfaces.
        case "netlink": try refuse(CSeccomp_socket, argument: 0, AF_NETLINK, number)
        // A socket option by its number.
        case let option where Int32(option) != nil:
            try refuse(CSeccomp_setsockopt, argument: 2, Int32(option) ?? 0, number)
        default: throw ProbeFailure(description: "there is no call \(parts[0])")
        }
    }

    private static func refuse(_ call: Int, argument: CInt, _ value: CInt, _ number: CInt) throws {
        guard CSeccomp_refuse_when(call, argument, UInt32(value), number) == 0 else {
            throw ProbeFailure(description: "seccomp: errno \(errno)")
        }
    }
}
