import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport

/// A loopback connection between two sockets, each with its own diary.
final class Wire {
    let listener: GCDAsyncSocket
    let client: GCDAsyncSocket
    let server: GCDAsyncSocket
    let atListener: Diary
    let atClient: Diary
    let atServer: Diary
    let queue = DispatchQueue(label: "delegates")

    private init(_ listener: GCDAsyncSocket, _ atListener: Diary, client: GCDAsyncSocket, _ atClient: Diary) async throws {
        (self.listener, self.atListener, self.client, self.atClient) = (listener, atListener, client, atClient)
        try await eventually("a connection is accepted") { !atListener.accepted.isEmpty && client.isConnected }
        server = atListener.accepted[0]
        atServer = Diary()
        server.setDelegate(atServer, delegateQueue: queue)
        atListener.forget()
    }

    static func make(client: GCDAsyncSocket = GCDAsyncSocket(), _ atClient: Diary = Diary()) async throws -> Wire {
        let queue = DispatchQueue(label: "delegates")
        let (listener, atListener) = try listening(queue)
        client.setDelegate(atClient, delegateQueue: queue)
        try client.connect(toHost: "127.0.0.1", onPort: listener.localPort)
        try await eventually("the client is connected") { atClient.has("connected to 127.0.0.1") }
        return try await Wire(listener, atListener, client: client, atClient)
    }

    static func listening(_ queue: DispatchQueue = DispatchQueue(label: "listener")) throws -> (GCDAsyncSocket, Diary) {
        let diary = Diary()
        let listener = GCDAsyncSocket(delegate: diary, delegateQueue: queue)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        return (listener, diary)
    }

    /// Starts TLS on both sides and waits until both are secure.
    func secure(client: [String: NSObject], server: [String: NSObject]) async throws {
        self.server.startTLS(server)
        self.client.startTLS(client)
        try await eventually("both sides are secure") { self.atClient.has("secure") && self.atServer.has("secure") }
    }
}

extension Diary {
    /// Waits for the end and returns its error.
    func end() async throws -> NSError? {
        try await eventually("the connection has ended") { self.has("disconnected") }
        return error as NSError?
    }

    /// Waits for a line.
    func wait(for line: String) async throws {
        try await eventually(line) { self.has(line) }
    }
}

extension DatagramDiary {
    func wait(for line: String) async throws {
        try await eventually(line) { self.has(line) }
    }
}

/// Returns a socket with a diary and a queue.
func makeSocket(_ diary: any GCDAsyncSocketDelegate) -> GCDAsyncSocket {
    GCDAsyncSocket(delegate: diary, delegateQueue: DispatchQueue(label: "delegate"))
}
