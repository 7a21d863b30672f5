internal import Dispatch
internal import FoundationEssentials
internal import SocketCore
internal import SocketTLS

/// Something that the delegate is to be told. A plain value: it waits in line until the state it speaks of is
/// consistent.
///
/// What is rare is indirect, so that what is frequent is small: each event is moved several times.
enum DelegateEvent: Sendable {
    indirect case didAccept(AcceptedConnection)
    indirect case didConnect(host: String, port: UInt16)
    indirect case didConnectToPath(String)
    indirect case progressed(ConnectionProgress)
    case didRead(Data, tag: Int)
    case didReadPartial(Int, tag: Int)
    indirect case didNotRead(Data, tag: Int, AsyncSocketError)
    case didCloseReadStream
    case didWrite(tag: Int)
    case didWritePartial(Int, tag: Int)
    case highWater(Int)
    case lowWater(Int)
    indirect case readTimedOut(TimedOutOperation)
    indirect case writeTimedOut(TimedOutOperation)
    indirect case didReceiveTrust(PeerTrust, answer: @Sendable (Bool) -> Void)
    case didSecure
    case didDisconnect(AsyncSocketError?)
}

/// A read or write that has taken too long, and where the delegate's answer goes.
struct TimedOutOperation: Sendable {
    let tag: Int
    let elapsed: TimeInterval
    let bytesDone: Int
    /// Takes the seconds to go on for.
    let answer: @Sendable (TimeInterval) -> Void
}

extension DelegateEvent {
    /// Calls the delegate. Everything that the delegate is told is told here, but for accepted connections:
    /// `AsyncSocket.adopt` tells of those, and asks for their queue. Other code of the user's runs in
    /// `perform(_:)`, and when what a packet holds is released.
    ///
    /// - Parameter delegate: nil when there is none (any more): questions then get the answer that ends the
    ///   connection.
    func deliver(to delegate: (any AsyncSocketDelegate)?, from socket: AsyncSocket) {
        switch self {
        case .didAccept(let connection):
            socket.adopt(connection, for: delegate)
        case .didConnect(let host, let port):
            delegate?.socket(socket, didConnectToHost: host, port: port)
        case .didConnectToPath(let path):
            delegate?.socket(socket, didConnectToPath: path)
        case .progressed(let progress):
            delegate?.socket(socket, connectionProgressed: progress)
        case .didRead(let data, let tag):
            delegate?.socket(socket, didRead: data, withTag: tag)
        case .didReadPartial(let count, let tag):
            delegate?.socket(socket, didReadPartialDataOfLength: count, tag: tag)
        case .didNotRead(let data, let tag, let error):
            delegate?.socket(socket, didNotReadDataWithTag: tag, bytesSoFar: data, dueToError: error)
        case .didCloseReadStream:
            delegate?.socketDidCloseReadStream(socket)
        case .didWrite(let tag):
            delegate?.socket(socket, didWriteDataWithTag: tag)
        case .didWritePartial(let count, let tag):
            delegate?.socket(socket, didWritePartialDataOfLength: count, tag: tag)
        case .highWater(let count):
            delegate?.socket(socket, writeQueueReachedHighWater: count)
        case .lowWater(let count):
            delegate?.socket(socket, writeQueueReachedLowWater: count)
        case .readTimedOut(let late):
            late.answer(
                delegate?.socket(
                    socket, shouldTimeoutReadWithTag: late.tag, elapsed: late.elapsed, bytesDone: late.bytesDone) ?? 0)
        case .writeTimedOut(let late):
            late.answer(
                delegate?.socket(
                    socket, shouldTimeoutWriteWithTag: late.tag, elapsed: late.elapsed, bytesDone: late.bytesDone) ?? 0)
        case .didReceiveTrust(let trust, let answer):
            guard let delegate else { return answer(false) }
            delegate.socket(socket, didReceive: trust, completionHandler: answer)
        case .didSecure:
            delegate?.socketDidSecure(socket)
        case .didDisconnect(let error):
            delegate?.socketDidDisconnect(socket, withError: error)
            delegate?.socketDidDisconnect(socket, withError: error as (any Error)?)
        }
    }
}
