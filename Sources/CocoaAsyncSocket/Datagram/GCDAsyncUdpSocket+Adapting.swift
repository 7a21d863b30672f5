// Rules of the cores:
//  1. A core is used once, from its first bind, connect or send until it closes. A new core with the same
//     configuration and filters replaces it for the next use.
//  2. A core has one of the states of CocoaAsyncSocket: it is created (`kDidCreateSockets`), and then bound
//     (`kDidBind`), connecting (`kConnecting`) or connected (`kDidConnect`).
//  3. A closed core is kept until its close has been delivered.

internal import AsyncSockets
public import Foundation
internal import Logging
internal import SocketBuffers

extension GCDAsyncUdpSocket {
    /// Creates a socket without a delegate, with a queue on which the socket runs.
    public convenience init(socketQueue sq: DispatchQueue?) { self.init(delegate: nil, delegateQueue: nil, socketQueue: sq) }

    /// Creates a socket with a delegate and the queue on which the delegate is called.
    public convenience init(delegate aDelegate: (any GCDAsyncUdpSocketDelegate)?, delegateQueue dq: DispatchQueue?) {
        self.init(delegate: aDelegate, delegateQueue: dq, socketQueue: nil)
    }

    /// Marks a queue. An alternative spelling of `markQueueTargetQueue(_:)`.
    public func markSocketQueueTargetQueue(_ socketQueuesPreConfiguredTargetQueue: DispatchQueue) {
        markQueueTargetQueue(socketQueuesPreConfiguredTargetQueue)
    }

    // MARK: - The core

    static func makeCore(
        _ events: CoreEvents<GCDAsyncUdpSocket>, _ delegateQueue: DispatchQueue?, _ socketQueue: DispatchQueue?
    ) -> AsyncUDPSocket {
        guard let delegateQueue else {
            return AsyncUDPSocket(inlineDelegate: nil as SilentDatagramDelegate?, socketQueue: socketQueue)
        }
        return AsyncUDPSocket(delegate: events, delegateQueue: delegateQueue.serialForDelegate, socketQueue: socketQueue)
    }

    /// The current core, even if it is closed. Use it for queries.
    var core: AsyncUDPSocket { facts.withLock { $0.core } }

    /// A core that is not closed. Use it for operations.
    var fresh: AsyncUDPSocket {
        let (old, queue) = (core, audience.withLock { $0.queue })
        guard old.isClosed else { return old }
        let new = Self.makeCore(events, queue, socketQueue)
        (new.isIPv4Enabled, new.isIPv6Enabled) = (old.isIPv4Enabled, old.isIPv6Enabled)
        new.preferredFamily = old.preferredFamily
        let (filters, sendBuffer) = facts.withLock { ($0.filters, $0.maxSend) }
        filters.apply(to: new)
        Self.setSendBuffer(sendBuffer, of: new)
        return facts.withLock { facts in
            // Another thread may have replaced the core already.
            if facts.core === old { facts.retire(with: new, keepsOld: queue != nil) }
            return facts.core
        }
    }

    /// A core with descriptors, for sending: a datagram without a destination creates them too.
    var sender: AsyncUDPSocket {
        let core = fresh
        guard !core.isCreated else { return core }
        do throws(AsyncSocketError) {
            try core.createDescriptors()
        } catch {
            note("the descriptors were not created: \(error)")
        }
        return core
    }

    func attempt(_ body: (AsyncUDPSocket) throws(AsyncSocketError) -> Void) throws {
        do throws(AsyncSocketError) {
            try body(fresh)
        } catch {
            throw error.asDatagramError
        }
    }

    static func internetAddress(_ data: Data) throws -> SocketEndpoint {
        guard let address = SocketEndpoint(data: data), address.family == .ipv4 || address.family == .ipv6 else {
            throw GCDAsyncUdpSocketError(.badParamError, "A valid IPv4 or IPv6 address was not given")
        }
        return address
    }

    /// Closes the socket. As in CocoaAsyncSocket on Apple platforms, the port is free when this method
    /// returns, unless it is called on the socket's queue.
    func closeAndWait() {
        let core = core
        guard core.isCreated else { return }
        core.disconnect()
        marks.performAndWait({}) { body in core.perform { body($0.first) } }
    }

    // MARK: - Settings

    func callBack(on queue: DispatchQueue?) {
        let hadQueue = audience.withLock { audience in
            defer { audience.queue = queue }
            return audience.queue != nil
        }
        let core = core
        // Without a delegate queue, the close is never delivered.
        if !hadQueue, core.isClosed { _ = facts.withLock { $0.noteEnd(of: core) } }
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

    func setSendBuffer(_ size: UInt16) {
        facts.withLock { $0.maxSend = size }
        Self.setSendBuffer(size, of: fresh)
    }

    /// - Parameter size: The size in bytes, or `nil` for the kernel's default.
    private static func setSendBuffer(_ size: UInt16?, of core: AsyncUDPSocket) {
        guard let size else { return }
        // Linux doubles the size of the buffer (socket(7)), so the kernel would accept a larger datagram.
        core.maximumSendLength = Int(size)
        do throws(AsyncSocketError) {
            try core.setOption(.sendBufferSize, to: Int(size))
        } catch {
            core.logger.debug("the send buffer size was not set: \(error)")
        }
    }

    func filterSends(by filter: GCDAsyncUdpSocketSendFilterBlock?, on queue: DispatchQueue?) {
        change { $0.send = queue.flatMap { queue in filter.map { ($0, queue) } } }
    }

    func filterReceipts(by filter: GCDAsyncUdpSocketReceiveFilterBlock?, on queue: DispatchQueue?) {
        change { $0.receive = queue.flatMap { queue in filter.map { ($0, queue) } } }
    }

    private func change(_ body: (inout DatagramFilters) -> Void) {
        // Releasing the objects captured by the old blocks may run user code, so they are released outside
        // the lock.
        let (old, new) = facts.withLock { facts in
            let old = facts.filters
            body(&facts.filters)
            return (old, facts.filters)
        }
        withExtendedLifetime(old) { new.apply(to: fresh) }
    }

    // MARK: - Facts

    var peer: SocketEndpoint? { core.isConnected ? core.connectedAddress : nil }

    func local(_ family: SocketEndpoint.Family?) -> SocketEndpoint? {
        let core = core
        guard core.isOpen else { return nil }
        return core.localAddresses.first { family == nil || $0.family == family }
    }

    func uses(_ family: SocketEndpoint.Family) -> Bool {
        let core = core
        if core.isCreated { return core.currentDescriptor(of: family) != nil }
        return family == .ipv4 ? core.isIPv4Enabled : core.isIPv6Enabled
    }

    func descriptor(_ family: SocketEndpoint.Family?) -> Int32 {
        guard marks.isCurrent else {
            note("the descriptor is available only inside perform(_:)")
            return -1
        }
        return core.currentDescriptor(of: family) ?? -1
    }

    func note(_ message: String) {
        core.logger.debug("\(message)")
    }
}

/// The delegate type of a socket without a delegate.
final class SilentDatagramDelegate: AsyncUDPSocketDelegate, Sendable {}
