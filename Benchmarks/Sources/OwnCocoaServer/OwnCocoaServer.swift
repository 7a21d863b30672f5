internal import ArgumentParser
internal import CocoaAsyncSocket
internal import Foundation
internal import ServerArguments

/// An echo server on the drop-in module, with a delegate queue as in code for Apple platforms.
@main
struct OwnCocoaServer: ParsableCommand {
    @OptionGroup var arguments: ServerArguments

    func run() throws {
        guard arguments.mode == .echo else { throw ValidationError("the drop-in module is measured with echo") }
        guard arguments.tls.isEmpty else { throw ValidationError("the drop-in module is measured without TLS") }
        let service = EchoService()
        let listener = GCDAsyncSocket(delegate: service, delegateQueue: DispatchQueue(label: "delegate"))
        guard let port = UInt16(exactly: arguments.port) else { throw ValidationError("\(arguments.port) is not a port") }
        try listener.accept(onInterface: "127.0.0.1", port: port)
        arguments.announce(port: Int(listener.localPort))
        // Not dispatchMain(), because it exits the main thread, which valgrind does not support.
        withExtendedLifetime((listener, service)) { while true { pause() } }
    }
}

/// Echoes everything.
final class EchoService: NSObject, GCDAsyncSocketDelegate {
    /// Used only on the delegate queue.
    private var sockets: Set<GCDAsyncSocket> = []

    func socket(_ sock: GCDAsyncSocket, didAcceptNewSocket newSocket: GCDAsyncSocket) {
        sockets.insert(newSocket)
        newSocket.readData(withTimeout: -1, tag: 0)
    }

    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTag tag: Int) {
        sock.write(data, withTimeout: -1, tag: 0)
        sock.readData(withTimeout: -1, tag: 0)
    }

    func socketDidDisconnect(_ sock: GCDAsyncSocket, withError err: (any Error)?) {
        sockets.remove(sock)
    }
}
