import AsyncSocketsTesting
import Foundation
import SocketCore
import SocketTestSupport

@testable import AsyncSockets

/// One end in a schedule, and what it has sent and received.
final class ScheduledEnd {
    struct Message: Hashable {
        static let secret = Data("secret".utf8)

        let number: UInt32
        let isSecret: Bool
        let size: Int

        init(number: UInt32, isSecret: Bool, size: Int) {
            (self.number, self.isSecret, self.size) = (number, isSecret, size)
        }

        /// Parses a message. Returns nil for other bytes, such as those of a corrupted datagram.
        init?(_ data: Data) {
            number = data.prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
            isSecret = data.dropFirst(4).starts(with: Self.secret)
            size = data.count
            guard data == self.data else { return nil }
        }

        var data: Data {
            var data = Data(count: size)
            data.replaceSubrange(0..<4, with: Swift.withUnsafeBytes(of: number.bigEndian) { Data($0) })
            data.replaceSubrange(4..<10, with: isSecret ? Self.secret : Data("plain-".utf8))
            return data
        }
    }

    let name: String
    let socket: AsyncUDPSocket
    private let recorder: DatagramRecorder
    private(set) var isUpgrading = false
    private(set) var upgrading: Task<Void, any Error>?
    private(set) var sent: [Message] = []
    private(set) var taken: [Message] = []
    private(set) var receives: [(task: Task<Datagram, any Error>, wasSecure: Bool)] = []
    private var sends: [Task<Void, any Error>] = []
    private var tags: [Int] = []

    /// - Parameter style: How the delegate is called, 0 to 2.
    init(_ name: String, style: Int) throws {
        self.name = name
        recorder = DatagramRecorder(trust: { _ in
            await Task.yield()
            return true
        })
        let unbound =
            switch style {
            case 0: AsyncUDPSocket(inlineDelegate: recorder)
            case 1: AsyncUDPSocket(delegate: recorder, delegateQueue: DispatchQueue(label: "delegate"))
            default: AsyncUDPSocket(inlineDelegate: recorder, socketQueue: DispatchQueue(label: "socket"))
            }
        unbound.firstRetransmission = .milliseconds(50)
        socket = try AsyncUDPSocket.bound("127.0.0.1", unbound)
    }

    func sendByDelegate(_ message: Message) {
        sent.append(message)
        tags.append(Int(message.number))
        socket.send(message.data, withTimeout: -1, tag: Int(message.number))
    }

    func sendByTask(_ message: Message) {
        sent.append(message)
        sends.append(Task.immediate { [socket] in try await socket.send(message.data) })
    }

    func receive(isShort: Bool) {
        receives.append(
            (Task.immediate { [socket] in try await socket.receive(timeout: isShort ? .milliseconds(1) : nil) }, socket.isSecure))
    }

    func upgrade(_ settings: TLSSettings<some TLSRole.Side>, byTask: Bool) throws {
        isUpgrading = true
        guard byTask else { return try socket.beginDTLS(settings: settings) }
        upgrading = Task.immediate { [socket] in
            if settings.trustEvaluation == .delegate {
                try await socket.startDTLS(
                    settings: settings,
                    trust: { _ in
                        await Task.yield()
                        return true
                    })
            } else {
                try await socket.startDTLS(settings: settings)
            }
        }
    }

    /// Collects the results of receives that have completed or can be cancelled.
    func collect(mayFail: Bool) async throws {
        for (task, wasSecure) in receives {
            task.cancel()
            do {
                try take(await task.value, wasSecure: wasSecure)
            } catch is CancellationError {
            } catch let error as AsyncSocketError where error.code == .readTimeout || mayFail {}
        }
        receives = []
    }

    func take(timeout: Duration) async throws {
        let wasSecure = socket.isSecure
        try take(await socket.receive(timeout: timeout), wasSecure: wasSecure)
    }

    private func take(_ datagram: Datagram, wasSecure: Bool) throws {
        guard let message = try message(in: datagram, wasSecure: wasSecure) else { return }
        guard message.isSecret ? socket.isSecure : !wasSecure else {
            throw Unexpected(description: "a task of the \(name) got \(message) on the other side of its upgrade")
        }
        taken.append(message)
    }

    /// Returns the message in a datagram, or nil for a handshake record from the other end, which started its
    /// handshake first.
    private func message(in datagram: Datagram, wasSecure: Bool) throws -> Message? {
        if let message = Message(datagram.data) { return message }
        guard !wasSecure, datagram.data.count > 13, (20...22).contains(datagram.data[0]), datagram.data[1] == 0xFE else {
            throw Unexpected(description: "\(name) got something else: \(Array(datagram.data.prefix(20)))")
        }
        return nil
    }

    var delivered: [Message] {
        recorder.history.compactMap { if case .received(let datagram) = $0 { Message(datagram.data) } else { nil } }
    }

    // MARK: - The end

    func secured() async throws {
        if let upgrading { try await upgrading.value }
        if isUpgrading { try await eventually("\(name) is secure") { socket.isSecure } }
    }

    func allAreSent() async throws {
        for task in sends { try await task.value }
        try await eventually("all sends of the delegate are answered") {
            recorder.history.count { if case .sent = $0 { true } else { false } } == tags.count
        }
    }

    /// Waits for the end of the connection and for every call.
    func ends(mayFail: Bool) async throws {
        _ = try await recorder.closed()
        for task in sends {
            do { try await task.value } catch is AsyncSocketError where mayFail {}
        }
        do { try await upgrading?.value } catch is CancellationError where mayFail {} catch is AsyncSocketError where mayFail {}
    }

    /// Each send completes once and in order, the end is the last event, and plaintext and encrypted data are
    /// not mixed up.
    func checkAnswers(mayFail: Bool) throws {
        var (answered, isSecure, history): ([Int], Bool, [DatagramTold]) = ([], false, recorder.history)
        guard case .closed(let end)? = history.popLast() else {
            throw Unexpected(description: "the end of the \(name) is not last")
        }
        guard end == nil || mayFail || end?.code == .closedByPeer else { throw Unexpected(description: "\(name): \(end as Any)") }
        for told in history {
            switch told {
            case .sent(let tag): answered.append(tag)
            case .notSent(let tag, let error):
                guard mayFail else { throw error }
                answered.append(tag)
            case .secured: isSecure = true
            case .received(let datagram):
                guard let message = try message(in: datagram, wasSecure: isSecure) else { continue }
                // The delegate is not notified of an upgrade in a task.
                guard message.isSecret == isSecure || upgrading != nil else {
                    throw Unexpected(description: "the delegate of the \(name) got \(message) on the other side of its upgrade")
                }
            case .closed: throw Unexpected(description: "the \(name) has closed twice")
            case .connected, .notConnected, .highWater, .lowWater, .failedToReach, .asked: break
            }
        }
        guard Set(answered).count == answered.count else { throw Unexpected(description: "\(name): answers \(answered)") }
        // A send after the end does not complete, because the delegate has received its last callback.
        guard mayFail || answered == tags else { throw Unexpected(description: "\(name): answers \(answered), not \(tags)") }
    }
}
