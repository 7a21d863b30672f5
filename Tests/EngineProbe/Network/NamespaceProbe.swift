internal import AsyncSockets
internal import Foundation
internal import SocketBuffers
internal import SocketCore
internal import SocketTestSupport

/// Checks that depend on the machine's interfaces. Run in a separate network namespace.
enum NamespaceProbe {
    /// Expects `fe80::1` on the loopback interface, and a tunnel `tun0`, for which getifaddrs(3) has no
    /// address.
    static func runScoped() throws {
        let problem = Result { try LocalInterface("tun0") }
        guard case .failure(let error as InterfaceError) = problem, error.message.contains("no address") else {
            throw ProbeFailure(description: "tun0: \(problem)")
        }
        let listener = Party()
        let server = AsyncSocket(inlineDelegate: listener)
        try server.accept(onInterface: "fe80::1%lo", port: 0)
        try expect("fe80::1%lo", for: "fe80::1", port: server.localPort, via: "lo")
        try expect("fe80::1%lo", for: "fe80::1", port: server.localPort, via: "fe80::1")
        try expect("fe80::1%lo", for: "fe80::1%lo", port: server.localPort, via: nil)
        try expect(nil, for: "fe80::1", port: server.localPort, via: nil)
        withExtendedLifetime((server, listener)) {}
        print("link-local addresses get their scope")
    }

    /// Expects a machine without IPv6 and with only the loopback interface.
    static func runWithoutIPv6() throws {
        let listener = Party()
        let server = AsyncSocket(inlineDelegate: listener)
        try server.accept(onInterface: "127.0.0.1", port: 0)
        for prefersIPv4 in [true, false] {
            try expect("127.0.0.1", for: "localhost", port: server.localPort, via: nil) {
                $0.isIPv4PreferredOverIPv6 = prefersIPv4
            }
            try expect("127.0.0.1", for: "localhost", port: server.localPort, via: "lo") {
                $0.isIPv4PreferredOverIPv6 = prefersIPv4
            }
        }
        withExtendedLifetime((server, listener)) {}
        print("localhost works without IPv6")
    }

    /// Expects that no name server can be reached.
    static func runWithoutResolver() throws {
        let party = Party()
        let client = AsyncSocket(inlineDelegate: party)
        try client.connect(toHost: "some.example", onPort: 1, withTimeout: .patient)
        guard case nil = try party.outcomes.next(), let error = party.errors.withLock({ $0 }) else {
            throw ProbeFailure(description: "some.example was found")
        }
        guard error.code == .hostNotFound, error.fault == .system, error.message.contains("some.example") else {
            throw ProbeFailure(description: "\(error)")
        }
        withExtendedLifetime((client, party)) {}
        print("the system is to blame when no name server answers")
    }

    /// - Parameter host: The expected address of the connection, or nil if connecting must fail.
    private static func expect(
        _ host: String?, for name: String, port: UInt16, via interface: String?, configure: (AsyncSocket) -> Void = { _ in }
    ) throws {
        let party = Party()
        let client = AsyncSocket(inlineDelegate: party)
        configure(client)
        try client.connect(toHost: name, onPort: port, viaInterface: interface, withTimeout: .patient)
        let outcome = try party.outcomes.next()
        guard outcome == host else {
            let error = party.errors.withLock { $0 }.map { "\($0)" } ?? "no error"
            throw ProbeFailure(description: "\(name) via \(interface ?? "any"): \(outcome ?? error)")
        }
        withExtendedLifetime((client, party)) {}
    }
}

/// A delegate that reports the address to which its socket has connected.
private final class Party: AsyncSocketDelegate, Sendable {
    let outcomes = Mailbox<String?>()
    /// The error of the last end.
    let errors = Locked<AsyncSocketError?>(nil)

    func socket(_ socket: AsyncSocket, didConnectToHost host: String, port: UInt16) { outcomes.put(host) }
    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        errors.withLock { $0 = error }
        outcomes.put(nil)
    }
}
