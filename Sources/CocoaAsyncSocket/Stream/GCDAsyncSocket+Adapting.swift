internal import AsyncSockets
internal import Foundation
internal import Logging
internal import SocketBuffers

// Translates the calls of CocoaAsyncSocket's interface into calls to the core.
extension GCDAsyncSocket {
    /// Enough for a program that queues a large file in one call, but a limit for a program that never stops
    /// writing (D13).
    static var pendingWriteLimit: Int { 1024 << 20 }

    /// Creates a core that calls `events` on the delegate queue. Without a queue, the core makes no
    /// callbacks.
    static func makeCore(
        _ events: CoreEvents<GCDAsyncSocket>, _ delegateQueue: DispatchQueue?, _ socketQueue: DispatchQueue?
    ) -> AsyncSocket {
        guard let delegateQueue else {
            return AsyncSocket(inlineDelegate: nil as SilentDelegate?, socketQueue: socketQueue)
        }
        return AsyncSocket(delegate: events, delegateQueue: delegateQueue.serialForDelegate, socketQueue: socketQueue)
    }

    // MARK: - The delegate

    var audience: (delegate: (any GCDAsyncSocketDelegate)?, queue: DispatchQueue?) {
        facts.withLock { ($0.delegate, $0.delegateQueue) }
    }

    func callBack(on queue: DispatchQueue?) {
        facts.withLock { $0.delegateQueue = queue }
        if let queue { core.setDelegate(events, delegateQueue: queue.serialForDelegate) } else { core.removeDelegate() }
    }

    func replaceUserData(_ value: Any?) {
        // Releasing the old value may run user code, so it is released outside the lock.
        let old = facts.withLock { facts in
            defer { facts.userData = value }
            return facts.userData
        }
        withExtendedLifetime(old) {}
    }

    // MARK: - Starting

    /// Checks the preconditions, and starts connecting or listening with `start`.
    func begin(
        _ operation: String, to host: String?, by interface: String? = nil,
        _ start: (AsyncSocket) throws(AsyncSocketError) -> Void
    ) throws {
        let (delegate, queue) = audience
        if delegate == nil { throw Self.misuse("Attempting to \(operation) without a delegate. Set a delegate first.") }
        if queue == nil { throw Self.misuse("Attempting to \(operation) without a delegate queue. Set a delegate queue first.") }
        guard core.isDisconnected else {
            throw Self.misuse("Attempting to \(operation) while connected or accepting connections. Disconnect first.")
        }
        guard core.isIPv4Enabled || core.isIPv6Enabled else {
            throw Self.misuse("Both IPv4 and IPv6 have been disabled. Must enable at least one protocol first.")
        }
        if let text = InterfaceCheck.complaint(about: interface, core.isIPv4Enabled, core.isIPv6Enabled) {
            throw GCDAsyncSocketError(.badParamError, text)
        }
        reads.begin(clears: true)
        defer { reads.begin(clears: false) }
        facts.withLock { ($0.host, $0.hasBegunTLS, $0.trust) = (host, false, EvaluationSettings()) }
        do throws(AsyncSocketError) {
            try start(core)
        } catch {
            throw error.asStreamError
        }
    }

    private static func misuse(_ message: String) -> GCDAsyncSocketError {
        GCDAsyncSocketError(.badConfigError, message)
    }

    static func internetAddress(_ data: Data) throws -> SocketEndpoint {
        guard let address = SocketEndpoint(data: data), address.family == .ipv4 || address.family == .ipv6 else {
            throw GCDAsyncSocketError(.badParamError, "A valid IPv4 or IPv6 address was not given")
        }
        return address
    }

    // MARK: - Taking over connections

    /// Creates the socket for an accepted connection, with this socket's class and delegate.
    func makeChild(socketQueue: DispatchQueue?) -> GCDAsyncSocket {
        // Created through the `AcceptedSocket` conformance, because the initializer itself is marked
        // unavailable.
        let type: Any.Type = Swift.type(of: self)
        let child = (type as? any AcceptedSocket.Type)?.init(accepted: self, socketQueue: socketQueue)
        let (delegate, queue) = audience
        return child as? GCDAsyncSocket ?? GCDAsyncSocket(delegate: delegate, delegateQueue: queue, socketQueue: socketQueue)
    }

    /// Replaces the core of a new socket with the core of an accepted connection, and applies the socket's
    /// configuration to it.
    func takeOver(_ accepted: AsyncSocket) {
        accepted.isIPv4Enabled = core.isIPv4Enabled
        accepted.isIPv6Enabled = core.isIPv6Enabled
        accepted.isIPv4PreferredOverIPv6 = core.isIPv4PreferredOverIPv6
        accepted.attemptDelay = core.attemptDelay
        accepted.autoDisconnectOnClosedReadStream = core.autoDisconnectOnClosedReadStream
        core = accepted
        callBack(on: audience.queue)
    }

    /// Takes over a connected descriptor. Called only on a new socket.
    ///
    /// The connection may close immediately on another thread, so no event is delivered before `core` is set.
    func adopt(_ descriptor: Int32, socketQueue: DispatchQueue?) throws {
        let queue = audience.queue.map {
            DispatchQueue(label: "GCDAsyncSocket.delegate", attributes: .initiallyInactive, target: $0)
        }
        defer { queue?.activate() }
        do throws(AsyncSocketError) {
            if let queue {
                core = try AsyncSocket(
                    adopting: descriptor, delegate: events, delegateQueue: queue, socketQueue: socketQueue)
            } else {
                core = try AsyncSocket(
                    adopting: descriptor, inlineDelegate: nil as SilentDelegate?, socketQueue: socketQueue)
            }
            core.maximumPendingWriteBytes = Self.pendingWriteLimit
            core.maximumConnections = .max
        } catch {
            throw error.asStreamError
        }
    }

    // MARK: - Facts

    var peer: SocketEndpoint? { core.isConnected ? core.connectedAddress : nil }
    var local: SocketEndpoint? { core.isDisconnected ? nil : core.localAddress }

    func has(_ family: SocketEndpoint.Family) -> Bool {
        if core.isConnected { return core.connectedAddress?.family == family }
        return core.listeningAddresses.contains { $0.family == family }
    }

    func descriptor(_ family: SocketEndpoint.Family?) -> Int32 {
        guard marks.isCurrent else {
            note("the descriptor is available only inside perform(_:)")
            return -1
        }
        if let family, !has(family) { return -1 }
        return core.currentDescriptor ?? marks.descriptor ?? -1
    }

    // MARK: - Reading

    func enqueueRead(_ buffer: NSMutableData?, _ offset: UInt, _ tag: Int, _ read: (AsyncSocket, _ ticket: Int) -> Void) {
        if let buffer, offset > UInt(buffer.length) {
            return note("a read was dropped: its offset is beyond the end of its buffer")
        }
        guard !core.isDisconnected else { return note("a read was dropped: the socket is not in use") }
        // Without a buffer the offset is ignored, so it may exceed `Int.max`.
        read(core, reads.append(tag: tag, buffer: buffer, offset: Int(clamping: offset)))
    }

    /// Converts a limit from CocoaAsyncSocket's interface, where 0 means unlimited.
    static func limit(_ length: UInt) -> Int {
        length == 0 ? .max : Int(clamping: length)
    }

    static func report(
        _ progress: OperationProgress?, tag: Int?, _ tagPointer: UnsafeMutablePointer<Int>?,
        _ done: UnsafeMutablePointer<UInt>?, _ total: UnsafeMutablePointer<UInt>?
    ) -> Float {
        tagPointer?.pointee = tag ?? 0
        done?.pointee = UInt(progress?.bytesDone ?? 0)
        total?.pointee = UInt(progress?.total ?? 0)
        guard let progress else { return .nan }
        return Float(progress.fraction ?? 1)
    }

    func note(_ message: String) {
        core.logger.debug("\(message)")
    }
}

/// The delegate type of a socket without a delegate.
final class SilentDelegate: AsyncSocketDelegate, Sendable {}

/// A socket that a listener can create for an accepted connection.
protocol AcceptedSocket: AnyObject {
    init(accepted listener: GCDAsyncSocket, socketQueue: DispatchQueue?)
}

@available(*, unavailable)
extension GCDAsyncSocket: AcceptedSocket {}
