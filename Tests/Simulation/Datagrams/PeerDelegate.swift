internal import AsyncSockets
internal import CSimulation
internal import Foundation

/// A peer with a delegate. It sends many messages at once.
final class PeerDelegate: Peer, AsyncUDPSocketDelegate, @unchecked Sendable {
    // Unchecked: as `SimulatedThread`.
    /// The messages whose sending has not completed, in the order of the calls.
    private var pending: [Int] = []
    /// The number of the last message that was passed to the socket, and that number at the disturbance.
    /// Later messages have no effect.
    private var lastNumber = -1
    private var lastNumberInTime: Int?
    private var hasBegun = false

    override init(_ index: Int, _ course: DatagramRun) {
        super.init(index, course)
        if plan.styles[index] == .inlineDelegate {
            socket?.setInlineDelegate(self)
        } else {
            socket?.setDelegate(self, delegateQueue: queue)
        }
    }

    override func run() {
        guard let socket else { return }
        perform { () throws(AsyncSocketError) in
            if mustConnect, let peerAddress { try socket.connect(toAddress: peerAddress) }
            try socket.beginReceiving()
        }
        send(earlyNumbers, socket)
        if plan.isSecure {
            if plan.upgradesInCallback { outside { course.pause(UInt64(course.pick(20, 2 * index)) * 1_000_000) } }
            // If this is not done in a callback, plaintext may be on its way to the delegate.
            beginDTLS(socket)
        }
        send(laterNumbers, socket)
        watchSilence()
    }

    /// Calls the socket. It may be closed during a disturbance.
    private func perform(_ body: () throws(AsyncSocketError) -> Void) {
        do throws(AsyncSocketError) { try body() } catch { if !plan.isDisturbed, !hasFinished { complain("\(error)") } }
    }

    /// Runs code of the simulation.
    private func outside(_ body: () -> Void) {
        CSim_set_simulated(false)
        body()
        CSim_set_simulated(true)
    }

    private func send(_ numbers: Range<Int>, _ socket: AsyncUDPSocket) {
        for number in numbers {
            // No callbacks follow the end.
            if hasFinished { return }
            pending.append(number)
            let data = message(number)
            if mustConnect {
                socket.send(data, withTimeout: -1, tag: number)
            } else if let peerAddress {
                socket.send(data, toAddress: peerAddress, withTimeout: -1, tag: number)
            }
            lastNumber = number
            switch course.pick(12, 2 * index) {
            case 1: outside { course.pause(UInt64(course.pick(20, 2 * index)) * 1_000_000) }
            case 2: socket.pauseReceiving()
            case 3: perform { () throws(AsyncSocketError) in try socket.beginReceiving() }
            default: break
            }
        }
        perform { () throws(AsyncSocketError) in try socket.beginReceiving() }
    }

    private func beginDTLS(_ socket: AsyncUDPSocket) {
        if hasBegun { return }
        hasBegun = true
        perform { () throws(AsyncSocketError) in
            if index == 0 {
                try socket.beginDTLS(settings: Certificates.client)
            } else {
                try socket.beginDTLS(settings: Certificates.server)
            }
        }
    }

    /// In some runs, a callback after the early messages upgrades the socket.
    private func upgrade(_ socket: AsyncUDPSocket) {
        guard plan.isSecure, plan.upgradesInCallback, !hasBegun, lastNumber + 1 >= earlyNumbers.upperBound else { return }
        if course.pick(2, 2 * index) == 1 { return }
        beginDTLS(socket)
        isProtected = true
    }

    override func disconnect() {
        if lastNumberInTime == nil { lastNumberInTime = lastNumber }
        super.disconnect()
    }

    /// Closes the socket when nothing has arrived for a while.
    private func watchSilence() {
        let limit: UInt64 = (plan.isSecure ? index == 0 ? 40 : 80 : 20) * 1_000_000_000
        let silence = course.kernel.now - lastArrival
        if hasFinished { return }
        if silence >= limit { return socket?.disconnectAfterSending() ?? () }
        course.kernel.after(limit - silence) { [self] in watchSilence() }
    }

    // MARK: - Callbacks

    private func enter(_ callback: StaticString) {
        course.trace.add(callback, index)
        if hasFinished { complain("\(callback) after didClose") }
    }

    private func complete(_ number: Int) {
        if pending.first == number { pending.removeFirst() } else { complain("message \(number) completes out of order") }
    }

    func udpSocket(_ socket: AsyncUDPSocket, didConnectToAddress address: SocketEndpoint) {
        enter("didConnect")
        upgrade(socket)
    }

    func udpSocket(_ socket: AsyncUDPSocket, didNotConnect error: AsyncSocketError) {
        enter("didNotConnect")
        if !plan.isDisturbed { complain("\(error)") }
    }

    func udpSocket(_ socket: AsyncUDPSocket, didSendDataWithTag tag: Int) {
        enter("didSend")
        complete(tag)
        noteSent(tag)
        upgrade(socket)
    }

    func udpSocket(_ socket: AsyncUDPSocket, didNotSendDataWithTag tag: Int, dueToError error: AsyncSocketError) {
        enter("didNotSend")
        complete(tag)
        // The peer may be closed.
        if !plan.isDisturbed, !mayBeForged(error), ![.system, .closedByPeer, .closed, .handshakeTimeout].contains(error.code) {
            complain("\(error)")
        }
    }

    func udpSocket(_ socket: AsyncUDPSocket, didReceive datagram: Datagram, withFilterContext context: (any Sendable)?) {
        enter("didReceive")
        note(datagram)
        upgrade(socket)
    }

    func udpSocketDidSecure(_ socket: AsyncUDPSocket) {
        enter("didSecure")
        noteSecured()
    }

    func udpSocketDidClose(_ socket: AsyncUDPSocket, withError error: AsyncSocketError?) {
        enter("didClose")
        // A disturbed peer may close this end while it sends.
        let last = lastNumberInTime ?? (plan.isDisturbed ? -1 : .max)
        if pending.contains(where: { $0 <= last }) { complain("the messages \(pending) are not completed at the end") }
        finish(error)
    }
}
