internal import AsyncSockets
internal import Foundation
internal import SocketCore

/// A service started by systemd-socket-activate. Echoes one line on one connection to the inherited sockets
/// with a name, prints the name and address, and exits.
enum ActivationProbe {
    static func run(_ name: String) throws {
        let connections = Mailbox<(SocketDescriptor, to: SocketEndpoint)>()
        let loop = try SocketEventLoop()
        let inherited = try InheritedDescriptor.claim(named: name)
        guard !inherited.isEmpty else { throw ProbeFailure(description: "no descriptor has the name \(name)") }
        let acceptors = try inherited.map { descriptor in
            let listener = try descriptor.takeListener()
            guard let address = listener.localAddress else { throw ProbeFailure(description: "a socket without an address") }
            let receiver = Acceptor.Receiver(
                accepted: { connection, _ in connections.put((connection, to: address)) }, paused: { _, _ in }, closed: {})
            return try Acceptor(adopting: listener, loop: loop, receiver: receiver)
        }
        for acceptor in acceptors { acceptor.start() }
        let (connection, address) = try connections.next()
        try echoLine(connection)
        print("served \(name) at \(address)")
        for acceptor in acceptors { acceptor.close() }
        print("unclaimed: \(try InheritedDescriptor.claimAll().map(\.name))")
        do throws(InheritedDescriptorError) {
            _ = try InheritedDescriptor.claim(named: name)
        } catch {
            return print(error.code)
        }
        throw ProbeFailure(description: "a second claim has found something")
    }

    /// The same with a listener for tasks.
    static func runListener(_ name: String) throws {
        let listener = try SocketListener(inherited: InheritedDescriptor.claim(named: name))
        let (served, ended) = (Mailbox<SocketEndpoint?>(), Mailbox<Result<Void, any Error>>())
        Task {
            do {
                try await listener.run { socket in
                    try await socket.write((try await socket.readLine() ?? "") + "\n")
                    served.put(socket.localAddress)
                    listener.beginClosing()
                }
                ended.put(.success(()))
            } catch {
                ended.put(.failure(error))
            }
        }
        guard let address = try served.next() else { throw ProbeFailure(description: "a socket without an address") }
        try ended.next().get()
        print("served \(name) at \(address)")
    }

    private static func echoLine(_ connection: SocketDescriptor) throws {
        _ = fcntl(connection.rawValue, F_SETFL, 0)
        var byte: UInt8 = 0
        repeat {
            try transfer { recv(connection.rawValue, &byte, 1, 0) }
            try transfer { send(connection.rawValue, &byte, 1, Int32(MSG_NOSIGNAL)) }
        } while byte != UInt8(ascii: "\n")
        connection.close()
    }

    /// Transfers one byte with a blocking call. `Scripts/checks/faults` makes it fail at first.
    private static func transfer(_ call: () -> Int) throws {
        while true {
            let count = call()
            if count == 1 { return }
            guard count < 0, [EINTR, EAGAIN, ENOBUFS].contains(errno) else {
                throw ProbeFailure(description: "the connection ended: \(count), errno \(errno)")
            }
        }
    }
}
