// All calls to the delegate of an `AsyncUDPSocket`, and to the bodies of `perform(_:)`, are in this file.
// `Documentation/Architecture.md` lists the other files that call user code.

internal import Dispatch
internal import SocketBuffers
internal import SocketCore
internal import Synchronization

extension AsyncUDPSocket: EventSocket {
    typealias Event = DatagramEvent
    typealias Delegate = any AsyncUDPSocketDelegate
    typealias Source = DatagramConnection

    var delegateChangeCount: Int { delegateChanges.load(ordering: .acquiring) }

    func copyDelegate(to delegate: inout (any AsyncUDPSocketDelegate)?, _ queue: inout DispatchQueue?) {
        state.withLock { $0.audience.copy(to: &delegate, &queue) }
    }

    // These two hooks are empty. A request made by a delegate looks up the connection under the socket's
    // lock, which is fast enough: each datagram is a complete operation, so there are fewer requests than for
    // a stream.

    func beginCallbacks(of source: DatagramConnection) {}

    func endCallbacks() {}

    func deliver(_ event: consuming DatagramEvent, to delegate: (any AsyncUDPSocketDelegate)?) {
        switch consume event {
        case .didConnect(let address): delegate?.udpSocket(self, didConnectToAddress: address)
        case .didNotConnect(let error): delegate?.udpSocket(self, didNotConnect: error)
        case .didSend(let tag): delegate?.udpSocket(self, didSendDataWithTag: tag)
        case .didNotSend(let tag, let error): delegate?.udpSocket(self, didNotSendDataWithTag: tag, dueToError: error)
        case .highWater(let count): delegate?.udpSocket(self, sendQueueReachedHighWater: count)
        case .lowWater(let count): delegate?.udpSocket(self, sendQueueReachedLowWater: count)
        case .didReceive(let arrived):
            if !arrived.endsAtUpgrade || !arrived.credit.isUpgradeClaimed {
                delegate?.udpSocket(self, didReceive: arrived.datagram, withFilterContext: arrived.datagram.filterContext)
            }
            arrived.credit.give(arrived.datagram.cost)
        case .didFailToReach(let address, let error, let credit):
            delegate?.udpSocket(self, didFailToReach: address, dueToError: error)
            credit.give(ReceiveCredit.costOfReport)
        case .didReceiveTrust(let trust, let answer):
            guard let delegate else { return answer(false) }
            delegate.udpSocket(self, didReceive: trust, completionHandler: answer)
        case .didSecure: delegate?.udpSocketDidSecure(self)
        case .didClose(let error): delegate?.udpSocketDidClose(self, withError: error)
        }
    }

    static func call(_ body: ([Int32]) -> Void, with descriptors: [Int32]) {
        body(descriptors)
    }
}
