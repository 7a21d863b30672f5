internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Glibc
internal import SocketBuffers

/// An interface is specified while there is no descriptor to query the kernel, which is not the caller's
/// fault. Also, a listener's observer is notified when accepting pauses.
enum ShortageProbe {
    private final class Party: AsyncSocketDelegate, SocketObserver, Sendable {
        enum Told: Sendable {
            case accepted(AsyncSocket)
            case paused(AcceptPause)
        }

        let mailbox = Mailbox<Told>()

        func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) { mailbox.put(.accepted(newSocket)) }
        func acceptingDidPause(_ pause: AcceptPause) { mailbox.put(.paused(pause)) }
    }

    static func run() throws {
        var limit = rlimit(rlim_cur: 64, rlim_max: 64)
        guard setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw ProbeFailure(description: "setrlimit")
        }
        let party = Party()
        let socket = AsyncSocket(inlineDelegate: party)
        var spare: [CInt] = []
        while case let descriptor = dup(0), descriptor >= 0 { spare.append(descriptor) }
        for interface in ["lo", "127.0.0.1", "nowhere0"] {
            try expectShortage { () throws(AsyncSocketError) in try socket.accept(onInterface: interface, port: 0) }
            try expectShortage { () throws(AsyncSocketError) in
                try socket.connect(toHost: "127.0.0.1", onPort: 1, viaInterface: interface)
            }
        }
        for descriptor in spare { close(descriptor) }
        socket.observer = party
        try socket.accept(onInterface: "lo", port: 0)
        try expectPause(of: socket, party)
        withExtendedLifetime(party) {}
        print("the system is to blame for a shortage")
    }

    private static func expectShortage(_ body: () throws(AsyncSocketError) -> Void) throws {
        do throws(AsyncSocketError) {
            try body()
        } catch {
            guard error.code == .system, error.fault == .system, error.errno == EMFILE else {
                throw ProbeFailure(description: "\(error), errno \(error.errno.map(String.init) ?? "none")")
            }
            return
        }
        throw ProbeFailure(description: "it went well without a descriptor")
    }

    /// The client takes the last descriptor. libdispatch may close or open one of its own at this moment.
    /// Then the listener accepts the connection, or the client cannot open a socket, and the probe tries
    /// again.
    private static func expectPause(of listener: AsyncSocket, _ party: Party) throws {
        guard let address = listener.localAddress else { throw ProbeFailure(description: "no address") }
        var taken: [CInt] = []
        for _ in 0..<100 {
            while case let descriptor = dup(0), descriptor >= 0 { taken.append(descriptor) }
            if let last = taken.popLast() { close(last) }
            let client: RawSocket
            do throws(LoopbackError) {
                client = try RawSocket.connected(to: address)
            } catch {
                guard error.message.contains("too many open files") else { throw error }
                continue
            }
            switch try party.mailbox.next() {
            case .accepted(let socket): socket.disconnect()
            case .paused(let pause):
                guard case .shortage(let error) = pause.reason, error.errno == EMFILE, pause.retryDelay == .milliseconds(50),
                    pause.listener == address
                else { throw ProbeFailure(description: "\(pause)") }
                return withExtendedLifetime(client) { for descriptor in taken { close(descriptor) } }
            }
        }
        throw ProbeFailure(description: "connections were accepted without a descriptor")
    }
}
