internal import Glibc
internal import SocketCore

extension AsyncSocketError {
    static func checkHost(_ text: String, _ operation: Operation) throws(AsyncSocketError) {
        do throws(HostError) {
            _ = try HostText(text, port: 0)
        } catch {
            throw .badParameter(operation, error.message)
        }
    }

    static func checkMaxLength(_ maxLength: Int) throws(AsyncSocketError) {
        guard maxLength > 0 else { throw .badParameter(.read, "maxLength must be at least 1, but is \(maxLength)") }
    }

    static func port(_ number: some BinaryInteger, _ operation: Operation) throws(AsyncSocketError) -> UInt16 {
        guard let port = UInt16(exactly: number) else {
            throw .badParameter(operation, "the port must be from 0 to 65535, but is \(number)")
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
        // If the resolver failed, the host may still have addresses.
        self.init(
            .hostNotFound, fault: error.isAnswer ? .caller : .system, operation: .resolve,
            message: "no \(kind) found for \"\(error.query.host)\": \(error.reason)", errno: error.errno)
    }

    init(file error: SystemError, path: String, operation: Operation) {
        switch error.errno {
        case ERANGE: self = .badParameter(operation, "the requested range is not within the file \"\(path)\"")
        case EINVAL: self = .badParameter(operation, "\"\(path)\" is not a regular file")
        default:
            self.init(
                .system, fault: .system, operation: operation, message: error.about("\"\(path)\"").description, errno: error.errno
            )
        }
    }

    init(_ error: InterfaceError, operation: Operation) {
        self =
            if let cause = error.cause {
                AsyncSocketError(.system, fault: .system, operation: operation, message: error.message, errno: cause.errno)
            } else {
                .badParameter(operation, error.message)
            }
    }

    init(_ error: NoRoute, destination: String) {
        let message =
            switch error {
            case .familyDisabled(let addresses):
                "\"\(destination)\" can only be reached over \(Self.families(of: addresses)), which is disabled: enable it"
            case .notFromInterface(let interface, let addresses):
                "the interface \"\(interface)\" has no \(Self.families(of: addresses)) address, which is required to reach \"\(destination)\""
            }
        self.init(.noUsableAddress, fault: .caller, operation: .connect, message: message)
    }

    static func families(of addresses: [SocketEndpoint]) -> String {
        let names: KeyValuePairs<SocketEndpoint.Family, String> = [
            .ipv4: "IPv4", .ipv6: "IPv6", .unix: "the Unix domain", .vsock: "virtual machines",
        ]
        let families = Set(addresses.map(\.family))
        return names.filter { families.contains($0.key) }.map(\.value).joined(separator: " and ")
    }

    /// Creates the error for a host with no reachable address. If a peer accepted a connection and reset it
    /// immediately, `errno` is from the last such connection. Otherwise it is from the last failure caused by
    /// the host or the network.
    init(failedAttempts: [(address: SocketEndpoint, error: SystemError)], destination: String) {
        let named = failedAttempts.prefix(Self.namedAttempts).map { "\($0.error.about($0.address))" }
        let more = failedAttempts.count - named.count
        let list = (named + (more > 0 ? ["and \(more) more"] : [])).joined(separator: "; ")
        if let reset = failedAttempts.last(where: { $0.error.isReset }) {
            self.init(
                .connectionReset, fault: .peer, operation: .connect,
                message: "\"\(destination)\" accepted the connection and reset it immediately (\(list))", errno: reset.error.errno
            )
            return
        }
        let telling = failedAttempts.last { !$0.error.isLocal } ?? failedAttempts.last
        let isLocal = telling?.error.isLocal != false
        let message =
            switch telling?.error.errno {
            case EMFILE where isLocal: "this process has no free file descriptors (too many open files)"
            case ENFILE where isLocal: "this system has no free file descriptors (too many open files in system)"
            case _ where isLocal: "this machine cannot connect to \"\(destination)\" (\(list))"
            default: "\"\(destination)\" did not accept the connection (\(list))"
            }
        self.init(
            .connectFailed, fault: isLocal ? .system : .peer, operation: .connect, message: message,
            errno: telling?.error.errno)
    }

    /// The maximum number of addresses in a message. The name server controls how many addresses a host has.
    private static let namedAttempts = 16
}

extension SystemError {
    /// Whether the attempt failed on this machine, before anything was sent, for lack of a socket, an address
    /// or a route.
    fileprivate var isLocal: Bool {
        call != "connect" || isFamilyMissing || errno == ENETUNREACH || errno == EINVAL
    }

    /// Whether the peer accepted the connection and reset it immediately. A connection to a port without a
    /// listener fails with ECONNREFUSED instead.
    fileprivate var isReset: Bool { call == "connect" && (errno == ECONNRESET || errno == EPIPE) }
}

extension AsyncSocketError {
    static func badPeekLength(_ length: Int) -> AsyncSocketError {
        .badParameter(
            .read, "the length of a peek must be from 1 to \(ReadHalf.peekLengths.upperBound) bytes, but is \(length)")
    }

    static func closing(_ operation: Operation) -> AsyncSocketError {
        AsyncSocketError(
            .closed, fault: .caller, operation: operation,
            message: "this side is closing the connection: reads and writes are no longer accepted")
    }

    /// Adds the progress of a file transfer to the message.
    func after(_ count: Int, of total: Int?, _ path: String) -> AsyncSocketError {
        if errno == ENODATA, operation == .write, let total {
            var error = self
            error.message = "\"\(path)\" became shorter while it was being sent (\(count) of \(total) bytes sent)"
            return error
        }
        return noting("after \(count)\(total.map { " of \($0)" } ?? "") bytes of \"\(path)\"")
    }

    /// Adds the progress of a read to the message, if the read has a length.
    func after(_ progress: OperationProgress?) -> AsyncSocketError {
        guard let progress, let total = progress.total else { return self }
        return noting("after \(progress.bytesDone) of \(total) bytes")
    }

    private func noting(_ note: String) -> AsyncSocketError {
        var error = self
        error.message += " (\(note))"
        // The description of a TLS error uses the message of the engine's error.
        error.tls?.message += " (\(note))"
        return error
    }

    static func readMaxedOut(_ maxLength: Int) -> AsyncSocketError {
        AsyncSocketError(
            .readMaxedOut, fault: .peer, operation: .read,
            message:
                "neither the delimiter nor the end of the stream was received within \(maxLength) bytes: set maxLength to a larger value"
        )
    }

    static func writeQueueFull(_ limit: Int) -> AsyncSocketError {
        AsyncSocketError(
            .writeQueueFull, fault: .caller, operation: .write,
            message: "the write queue would exceed \(limit) bytes (maximumPendingWriteBytes): write less or raise the limit")
    }
}

extension AsyncSocketError {
    /// Throws if the arguments of a client contradict each other.
    static func check(_ tls: TLSClientSettings?, hasTrust: Bool) throws(AsyncSocketError) {
        if hasTrust, tls == nil { throw .badParameter(.connect, "a trust closure requires a TLS connection: pass tls as well") }
    }

    static func check(_ settings: TLSSettingValues, over transport: TLSTransport = .stream) throws(AsyncSocketError) {
        do throws(TLSError) {
            _ = try TLSContext.context(for: settings, over: transport)
        } catch {
            throw AsyncSocketError(error, operation: transport == .stream ? .startTLS : .startDTLS)
        }
    }
}

// MARK: - Datagrams

extension AsyncSocketError {
    /// Creates an error for a single datagram, or for a call that sets up a UDP socket.
    init(datagram error: SystemError, _ operation: Operation) {
        self.init(refusal: error, operation: operation)
        switch error.errno {
        // Too large for IP or for the path, or a broadcast without permission.
        case EMSGSIZE, EACCES:
            code = error.errno == EMSGSIZE ? .badParameter : .system
            fault = .caller
        // Reported by a router or by the peer's machine.
        case ECONNREFUSED, EHOSTUNREACH: fault = .peer
        default: break
        }
    }

    static func sendQueueFull(_ limit: Int) -> AsyncSocketError {
        AsyncSocketError(
            .writeQueueFull, fault: .caller, operation: .send,
            message: "the send queue would exceed \(limit) bytes (maximumPendingSendBytes): send less or raise the limit")
    }

    static var notConnected: AsyncSocketError {
        .badConfiguration(.send, "the socket is not connected: connect it first or pass a destination")
    }

    static var hasPeer: AsyncSocketError {
        .badConfiguration(.send, "the socket is connected and can send only to its peer: send without a destination")
    }

    static func unreachable(_ destination: String) -> AsyncSocketError {
        AsyncSocketError(
            .noUsableAddress, fault: .caller, operation: .send,
            message:
                "\"\(destination)\" requires an IP version that the socket does not use: enable it or bind to a matching address")
    }

    static func notOpen(_ operation: Operation) -> AsyncSocketError {
        .badConfiguration(operation, "the socket is not in use: bind or connect it first")
    }
}
