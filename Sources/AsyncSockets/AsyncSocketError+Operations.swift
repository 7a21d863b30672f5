internal import Glibc
internal import SocketCore

extension AsyncSocketError {
    /// Throws `.badParameter` for text that is not a host.
    static func checkHost(_ text: String, _ operation: String) throws(AsyncSocketError) {
        do throws(HostError) {
            _ = try HostText(text, port: 0)
        } catch {
            throw .badParameter(operation, error.message)
        }
    }

    /// Throws `.badParameter` for a read that could return no byte.
    static func checkMaxLength(_ maxLength: Int) throws(AsyncSocketError) {
        guard maxLength > 0 else { throw .badParameter("read", "maxLength must be at least 1, and is \(maxLength)") }
    }

    /// The port with that number.
    ///
    /// - Throws: `.badParameter` for a number that no port has.
    static func port(_ number: some BinaryInteger, _ operation: String) throws(AsyncSocketError) -> UInt16 {
        guard let port = UInt16(exactly: number) else {
            throw .badParameter(operation, "\(number) is not a port: they are from 0 to 65535")
        }
        return port
    }

    init(_ error: ResolveError) {
        let kind =
            switch error.query.families {
            case .ipv4: "IPv4 address"
            case .ipv6: "IPv6 address"
            default: "address"
            }
        // A resolver that is down says nothing about the host.
        self.init(
            .hostNotFound, blame: error.isAnswer ? .caller : .system, operation: "resolve",
            message: "no \(kind) for \(error.query.host): \(error.reason)", errno: error.errno)
    }

    init(_ error: InterfaceError, operation: String) {
        self =
            if let cause = error.cause {
                AsyncSocketError(.system, blame: .system, operation: operation, message: error.message, errno: cause.errno)
            } else {
                .badParameter(operation, error.message)
            }
    }

    init(_ error: NoRoute, destination: String) {
        let message =
            switch error {
            case .familyDisabled(let addresses):
                "\(destination) is reached by \(Self.families(of: addresses)) only, which is disabled"
            case .notFromInterface(let interface, let addresses):
                "the interface \(interface) has no address of \(Self.families(of: addresses)), and \(destination) has no other"
            }
        self.init(.noUsableAddress, blame: .caller, operation: "connect", message: message)
    }

    private static func families(of addresses: [SocketAddress]) -> String {
        let names: KeyValuePairs<SocketAddress.Family, String> = [
            .ipv4: "IPv4", .ipv6: "IPv6", .unix: "the Unix domain", .virtualMachine: "virtual machines",
        ]
        let families = Set(addresses.map(\.family))
        return names.filter { families.contains($0.key) }.map(\.value).joined(separator: " and ")
    }

    /// Every address failed. `errno` is that of the last failure that says something about the host and not
    /// about this machine.
    init(failedAttempts: [(address: SocketAddress, error: SystemError)], destination: String) {
        let named = failedAttempts.prefix(Self.namedAttempts).map { "\($0.error.about($0.address))" }
        let more = failedAttempts.count - named.count
        let list = (named + (more > 0 ? ["and \(more) more"] : [])).joined(separator: "; ")
        let telling = failedAttempts.last { !$0.error.isLocal } ?? failedAttempts.last
        self.init(
            .connectFailed, blame: telling?.error.isLocal == false ? .peer : .system, operation: "connect",
            message: "\(destination) accepted no connection (\(list))", errno: telling?.error.errno
        )
    }

    /// A message names this many addresses at most: the server that answers for a name decides how many a
    /// host has.
    private static let namedAttempts = 16
}

extension SystemError {
    /// True when nothing was sent: this machine has no socket, address or route for it.
    fileprivate var isLocal: Bool {
        call != "connect" || isFamilyMissing || errno == ENETUNREACH || errno == EINVAL
    }
}

extension AsyncSocketError {
    static func closing(_ operation: String) -> AsyncSocketError {
        AsyncSocketError(
            .closed, blame: .caller, operation: operation,
            message: "this side is closing the connection and accepts nothing new")
    }

    static func readMaxedOut(_ maxLength: Int) -> AsyncSocketError {
        AsyncSocketError(
            .readMaxedOut, blame: .peer, operation: "read",
            message: "the delimiter or the end did not come within maxLength, \(maxLength) bytes")
    }

    static func writeQueueFull(_ limit: Int) -> AsyncSocketError {
        AsyncSocketError(
            .writeQueueFull, blame: .caller, operation: "write",
            message: "more than \(limit) bytes would wait to be written: write less, or raise maximumPendingWriteBytes")
    }
}

extension AsyncSocketError {
    /// Throws when the arguments of a client do not fit together.
    static func check(_ tls: TLSSettings?, hasTrust: Bool) throws(AsyncSocketError) {
        if hasTrust, tls == nil { throw .badParameter("connect", "trust is for connections with TLS: give the parameter tls") }
        if tls?.role == .server {
            throw .badParameter(
                "connect",
                "tls needs settings of a client, such as .client: for the other role connect without, and call startTLS")
        }
    }

    /// Throws when the settings are unusable.
    static func check(_ settings: TLSSettings) throws(AsyncSocketError) {
        do throws(TLSError) {
            _ = try TLSContext.context(for: settings)
        } catch {
            throw AsyncSocketError(error, operation: "startTLS")
        }
    }
}
