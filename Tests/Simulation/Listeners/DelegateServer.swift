internal import AsyncSockets
internal import Dispatch
internal import Foundation

/// A listener with a delegate, which serves the accepted sockets too.
final class DelegateServer: Server, AsyncSocketDelegate, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    private enum Tag { static let (number, request, reply) = (1, 2, 3) }

    private let course: ListenerRun
    private let plan: ListenerPlan
    private let queue = DispatchQueue(label: "server")
    private var listener: AsyncSocket?
    /// The accepted sockets that are open, with the clients that have sent their numbers.
    private var sockets: [ObjectIdentifier: (socket: AsyncSocket, client: Int?)] = [:]
    private var acceptedCount = 0
    private var hasShutDown = false
    private var hasEnded = false
    var timeoutCount = 0

    init(_ run: ListenerRun) {
        (course, plan) = (run, run.plan)
        let listener = plan.hasQueue ? AsyncSocket(delegate: self, delegateQueue: queue) : AsyncSocket(inlineDelegate: self)
        do {
            try listener.accept(onInterface: "127.0.0.1", port: ListenerRun.port)
        } catch {
            complain("\(error)")
        }
        self.listener = listener
    }

    private func complain(_ text: String) { course.scheduler.fail("server: \(text)") }

    private func enter(_ callback: StaticString, _ socket: AsyncSocket) {
        course.trace.add(callback, 0)
        if sockets[ObjectIdentifier(socket)] == nil { complain("\(callback) of a socket that is not open") }
    }

    var refusalCount: Int { 0 }

    func run() {}

    func shutDown() { listener?.disconnect() }

    // MARK: - Callbacks

    func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
        course.trace.add("didAccept", 0)
        if hasEnded { complain("didAcceptNewSocket after didDisconnect") }
        if hasShutDown { complain("didAcceptNewSocket after disconnect") }
        acceptedCount += 1
        sockets[ObjectIdentifier(newSocket)] = (newSocket, nil)
        do throws(AsyncSocketError) {
            if plan.hasTLS { try newSocket.beginTLS(settings: Certificates.server) }
        } catch {
            // The client may have reset the connection.
            course.trace.add("beginTLS fails", 0)
        }
        newSocket.readData(to: Data([Pattern.lineFeed]), tag: Tag.number)
        guard plan.isEarly, plan.shutdownCount == acceptedCount else { return }
        hasShutDown = true
        socket.disconnect()
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        enter("didRead", socket)
        guard tag == Tag.request, let client = sockets[ObjectIdentifier(socket)]?.client else {
            return begin(Int(String(decoding: data.dropLast(), as: UTF8.self)), socket)
        }
        let pattern = course.pattern(of: client)
        if let complaint = pattern.complaint(about: data, at: 0) { complain("request \(client): \(complaint)") }
        if data.count != pattern.bytes.count { complain("request \(client): \(data.count) bytes") }
        socket.write(data, tag: Tag.reply)
        socket.disconnectAfterWriting()
    }

    /// A request is the number of the client, a line feed, and the pattern of the client.
    private func begin(_ client: Int?, _ socket: AsyncSocket) {
        guard let client, plan.clients.indices.contains(client) else { return complain("an altered request") }
        sockets[ObjectIdentifier(socket)]?.client = client
        socket.readData(toLength: course.pattern(of: client).bytes.count, tag: Tag.request)
    }

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) { enter("didWrite", socket) }

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        guard socket === listener else {
            enter("didDisconnect", socket)
            return sockets[ObjectIdentifier(socket)] = nil
        }
        course.trace.add("listener ends", 0)
        if hasEnded { complain("didDisconnect twice") }
        if let error { complain("the listener fails: \(error)") }
        hasEnded = true
    }

    // MARK: - The end

    func complaintAtEnd(acceptedCount count: Int) -> String? {
        if !hasEnded { return "the listener does not end" }
        if !sockets.isEmpty { return "\(sockets.count) accepted sockets are open at the end" }
        // A connection that is accepted during `disconnect()` is closed.
        return acceptedCount <= count ? nil : "\(acceptedCount) of \(count) connections are delivered"
    }

    func abandon() { listener = nil }
}
