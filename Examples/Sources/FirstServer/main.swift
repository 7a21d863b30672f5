// An echo server that requires client certificates.
//
//     swift run --package-path Examples first-server 4433
//
// Run it in a folder with server.pem and server.key (the server's certificate and key) and clients.pem (the
// CA that issued the clients' certificates). Then:
//
//     openssl s_client -connect localhost:4433 -CAfile ca.pem -cert alice.pem -key alice.key -quiet

import AsyncSockets
import Dispatch
import Foundation

/// Echoes each line to clients whose certificate's common name is alice or bob.
final class EchoServer: AsyncSocketDelegate {
    private let listener = AsyncSocket()
    private var settings: TLSServerSettings?
    private var clients: [ObjectIdentifier: AsyncSocket] = [:]

    /// After this call, everything runs on one queue, so no lock is needed.
    func start(onPort port: UInt16) throws {
        var settings = TLSSettings.server(
            identity: try TLSIdentity(certificateFile: "server.pem", privateKeyFile: "server.key"))
        settings.clients = .certificates(.required)
        settings.trustRoots = .file(path: "clients.pem")
        settings.trustEvaluation = .delegate
        self.settings = settings
        listener.maximumConnections = 1_000
        listener.setDelegate(self, delegateQueue: DispatchQueue(label: "echo-server"))
        try listener.accept(onPort: port)
        print("listening on port \(listener.localPort)")
    }

    func socket(_ listener: AsyncSocket, didAcceptNewSocket client: AsyncSocket) {
        guard let settings else { return }
        clients[ObjectIdentifier(client)] = client  // a socket closes when the last reference to it is released
        do {
            try client.beginTLS(settings: settings)
            readLine(from: client)
        } catch {
            print("cannot serve: \(error)")
            client.disconnect()
        }
    }

    func socket(_ client: AsyncSocket, didReceive trust: PeerTrust, completionHandler: @escaping @Sendable (Bool) -> Void) {
        completionHandler(["alice", "bob"].contains(trust.leaf?.commonName))  // OpenSSL has already verified the chain
    }

    func socket(_ client: AsyncSocket, didRead line: Data, withTag tag: Int) {
        client.write(line, withTimeout: 30)
    }

    func socket(_ client: AsyncSocket, didWriteDataWithTag tag: Int) {
        readLine(from: client)  // after the write, so a client that does not read cannot use up memory
    }

    func socketDidDisconnect(_ client: AsyncSocket, withError error: AsyncSocketError?) {
        clients[ObjectIdentifier(client)] = nil
        if let error, !error.isOrderlyEnd { print("a connection failed: \(error.localizedDescription)") }
    }

    private func readLine(from client: AsyncSocket) {
        client.readData(to: AsyncSocket.lf, withTimeout: 60, maxLength: 4_096)
    }
}

let server = EchoServer()
do {
    try server.start(onPort: CommandLine.arguments.dropFirst().first.flatMap(UInt16.init) ?? 4433)
    dispatchMain()
} catch {
    print("cannot start: \(error)")
    exit(EXIT_FAILURE)
}
