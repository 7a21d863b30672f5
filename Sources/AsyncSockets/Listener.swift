internal import Glibc
internal import Logging
internal import SocketBuffers
internal import SocketCore

/// The listening half of a socket: one `Acceptor` for each address family, on one port.
final class Listener: Sendable {
    private let acceptors: [Acceptor]

    /// The IPv4 address if it has one, or else the IPv6 one.
    var localAddress: SocketAddress? { acceptors.first?.localAddress }

    init(_ acceptors: [Acceptor]) {
        self.acceptors = acceptors
    }

    /// Listens on every one of `addresses`; all get the port of the first, which the kernel chooses when it is zero.
    ///
    /// A family that this machine lacks is left out, unless it would be the only one.
    static func listen(
        on addresses: [SocketAddress], loop: EventLoop, deliver: @escaping @Sendable (DelegateEvent) -> Void
    ) throws(SystemError) -> Listener {
        for _ in 0..<portAttempts {
            do throws(SystemError) {
                return try Listener(bind(addresses, loop, deliver))
            } catch {
                // The port that the kernel chose for one family may be taken in the other: let it choose again.
                guard error.isAddressInUse, addresses.first?.port == 0 else { throw error }
            }
        }
        return try Listener(bind(addresses, loop, deliver))
    }

    private static let portAttempts = 16

    private static func bind(
        _ addresses: [SocketAddress], _ loop: EventLoop, _ deliver: @escaping @Sendable (DelegateEvent) -> Void
    ) throws(SystemError) -> [Acceptor] {
        let openCount = Locked(0)
        let receiver = makeReceiver(openCount: openCount, deliver: deliver)
        var acceptors: [Acceptor] = []
        for address in addresses {
            let port = acceptors.first?.localAddress.port ?? address.port ?? 0
            do throws(SystemError) {
                acceptors.append(try Acceptor(on: address.withPort(port), loop: loop, receiver: receiver))
            } catch {
                guard error.isFamilyMissing, addresses.count > 1 else { throw error }
            }
        }
        guard !acceptors.isEmpty else { throw SystemError("socket", errno: EAFNOSUPPORT) }
        openCount.withLock { $0 = acceptors.count }
        return acceptors
    }

    private static func makeReceiver(
        openCount: Locked<Int>, deliver: @escaping @Sendable (DelegateEvent) -> Void
    ) -> Acceptor.Receiver {
        Acceptor.Receiver(
            accepted: { deliver(.didAccept($0, from: $1)) },
            paused: { reason, seconds in
                socketLogger.warning("accepting pauses", metadata: ["reason": "\(reason)", "seconds": "\(seconds)"])
            },
            closed: {
                let isLast = openCount.withLock { count in
                    count -= 1
                    return count == 0
                }
                if isLast { deliver(.didDisconnect(nil)) }
            }
        )
    }

    func start() throws(SystemError) {
        for acceptor in acceptors { try acceptor.start() }
    }

    func close() {
        for acceptor in acceptors { acceptor.close() }
    }
}

/// Where the sockets write what nobody was there to be told.
let socketLogger = Logger(label: "AsyncSockets")
