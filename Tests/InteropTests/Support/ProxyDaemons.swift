import AsyncSockets
import Foundation

/// A proxy from Debian that runs in the foreground on a port of 127.0.0.1.
struct ProxyDaemon {
    enum Kind: CaseIterable, Sendable {
        /// Dante, SOCKS 5. It rejects connections to 127.0.0.9.
        case danted
        /// MicroSocks, SOCKS 5.
        case microsocks
        /// Tinyproxy, HTTP. It allows CONNECT to only one port.
        case tinyproxy

        /// Debian 13 does not package Dante. `Scripts/test` lists the programs that a system does not have.
        /// Any other missing program is a failure.
        var isPackaged: Bool {
            let absent = ProcessInfo.processInfo.environment["ABSENT_PROGRAMS"] ?? ""
            return !absent.split(separator: " ").contains(Substring("\(self)"))
        }
    }

    static let credentials = SocketProxy.Credentials(username: "tester", password: "secret")

    let kind: Kind
    let port: UInt16
    let program: Program
    private let folder: TemporaryFolder

    func stop() {
        program.stop()
    }

    /// - Parameters:
    ///   - asksForCredentials: Whether it serves `credentials` only. Dante has no users but those of the
    ///     system, and cannot.
    ///   - target: The port to which it allows connections; Tinyproxy only.
    init(_ kind: Kind, asksForCredentials: Bool = false, target: UInt16) throws {
        self.kind = kind
        folder = try TemporaryFolder()
        port = try Loopback.freePort()
        let credentials = asksForCredentials ? Self.credentials : nil
        switch kind {
        case .danted:
            let configuration = try folder.write(Self.danteConfiguration(port), to: "danted.conf")
            // Dante closes all inherited descriptors, including one that Foundation uses to detect the exit
            // of a process. Foundation would then wait for Dante and not notice other exits. A shell keeps
            // the descriptor open.
            let command = "danted -f \(configuration) -p \(folder.path)/danted.pid & trap \"kill $!\" TERM; wait"
            program = try Program(["sh", "-c", command])
        case .microsocks:
            let users = credentials.map { ["-u", $0.username, "-P", $0.password] } ?? []
            program = try Program(["microsocks", "-i", "127.0.0.1", "-p", "\(port)"] + users)
        case .tinyproxy:
            var lines = ["Port \(port)", "Listen 127.0.0.1", "Timeout 60", "MaxClients 20", "ConnectPort \(target)"]
            if let credentials { lines.append("BasicAuth \(credentials.username) \(credentials.password)") }
            let configuration = try folder.write(lines.joined(separator: "\n") + "\n", to: "tinyproxy.conf")
            program = try Program(["tinyproxy", "-d", "-c", configuration])
        }
    }

    /// danted.conf(5)
    private static func danteConfiguration(_ port: UInt16) -> String {
        """
        logoutput: stderr
        internal: 127.0.0.1 port = \(port)
        external: lo
        clientmethod: none
        socksmethod: none
        user.unprivileged: nobody
        client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
        socks block { from: 0.0.0.0/0 to: 127.0.0.9/32 }
        socks pass {
          from: 0.0.0.0/0 to: 0.0.0.0/0
          command: connect
        }

        """
    }

    func proxy(_ credentials: SocketProxy.Credentials? = nil) -> SocketProxy {
        switch kind {
        case .danted, .microsocks: .socks5(host: "127.0.0.1", port: port, credentials: credentials)
        case .tinyproxy: .http(host: "127.0.0.1", port: port, credentials: credentials)
        }
    }

    /// Waits until it is listening.
    func started() async throws -> ProxyDaemon {
        _ = try await Loopback.connect(to: port, of: program)
        return self
    }
}
