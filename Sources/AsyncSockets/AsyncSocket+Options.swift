internal import Dispatch
internal import Glibc
internal import SocketBuffers
public import SocketCore

extension AsyncSocket {
    /// Sets a socket option: `try socket.setOption(.keepAlive, to: true)`.
    ///
    /// On an established connection or a listener, the option takes effect before the call returns. Either
    /// way, the socket applies the value to descriptors it opens later, before they are bound or connected,
    /// and to connections accepted from now on. You may call this from any thread, and it does not block. If
    /// the kernel later rejects a stored value, the connection attempt fails or `accept` throws.
    ///
    /// - Throws: `.badParameter` if the value is invalid or this kind of socket lacks the option (`EINVAL`,
    ///   `EDOM`, `EOPNOTSUPP`, `ENOPROTOOPT`), `.system` if the kernel rejects the call, for example with
    ///   `EPERM`. See `errno` for the cause. After an error, the value is not stored.
    public func setOption<Value>(_ option: SocketOptionKey<Value>, to value: Value) throws(AsyncSocketError) {
        do throws(SystemError) {
            try state.withLock { state throws(SystemError) in
                try state.occupation.set(option, to: value)
                try state.options.set(option, to: value)
            }
        } catch {
            throw AsyncSocketError(refusal: error, operation: .setOption)
        }
    }

    /// Returns the value of an option: the kernel's value if there is a connection or a listener, or
    /// otherwise the value passed to `setOption(_:to:)`.
    ///
    /// You may call this from any thread, and it does not block.
    ///
    /// - Throws: `.badConfiguration` if there is neither a descriptor nor a value set with
    ///   `setOption(_:to:)`, and otherwise the errors of `setOption(_:to:)`.
    public func option<Value>(_ option: SocketOptionKey<Value>) throws(AsyncSocketError) -> Value {
        do throws(SystemError) {
            let value = try state.withLock { state throws(SystemError) in
                try state.occupation.value(of: option) ?? state.options.value(of: option)
            }
            if let value { return value }
        } catch {
            throw AsyncSocketError(refusal: error, operation: .option)
        }
        throw .badConfiguration(.option, "the socket has no connection and \(option.name) was not set: set the option first")
    }

    /// An application-defined value to keep with the socket. The socket does not use it. On accepted sockets
    /// it is initially `nil`.
    public var userData: (any Sendable)? {
        get { state.withLock { $0.extras?.value.userData } }
        set { changeExtras { $0.userData = newValue } }
    }

    func changeExtras(_ change: (inout SocketExtras) -> Void) {
        // The old value may run user code when it is released, which must not happen under the lock.
        _ = state.withLock { state in
            let old = state.extras
            var extras = old?.value ?? SocketExtras()
            change(&extras)
            state.extras = extras.isEmpty ? nil : CopyOnWrite(extras)
            return old
        }
    }

    /// Runs `body` with the descriptor, excluding all other activity on the connection: for system calls that
    /// this library does not offer.
    ///
    /// The call does not block. `body` normally runs immediately, on this thread. If another thread is
    /// currently working on the socket, `body` runs on that thread once the work is finished. With a socket
    /// queue, `body` runs on that queue. Return quickly and do not block. The descriptor is valid inside
    /// `body` only. Do not close it, read from it, write to it or make it blocking. On a listener, `body`
    /// receives a duplicate of one of its descriptors.
    ///
    /// - Parameter body: Receives the descriptor, or `nil` if the socket is not in use or not yet connected.
    public func perform(_ body: @escaping @Sendable (_ descriptor: Int32?) -> Void) {
        switch state.withLock({ $0.occupation }) {
        case .connection(let connection): connection.post(.perform(body))
        case .listening(let listener, _): runOnSocketQueue { Self.perform(body, on: listener) }
        case .nothing: runOnSocketQueue { Self.call(body, with: nil) }
        }
    }

    /// Passes a duplicate descriptor, because the listener may close its own at any time.
    private static func perform(_ body: (Int32?) -> Void, on listener: Listener) {
        let copy = listener.duplicateDescriptor()
        call(body, with: copy)
        if let copy { Glibc.close(copy) }
    }

    private func runOnSocketQueue(_ body: @escaping @Sendable () -> Void) {
        if let socketQueue { socketQueue.async(execute: body) } else { body() }
    }
}

extension AsyncSocket.Occupation {
    fileprivate func set<Value>(_ option: SocketOptionKey<Value>, to value: Value) throws(SystemError) {
        switch self {
        case .nothing: break
        case .listening(let listener, _): try listener.set(option, to: value)
        case .connection(let connection):
            try connection.record.withLock { record throws(SystemError) in
                if let descriptor = record.live.descriptor {
                    try descriptor.set(option, to: value)
                } else {
                    try record.live.lateOptions.set(option, to: value)
                }
                try record.live.options.set(option, to: value)
            }
        }
    }

    fileprivate func value<Value>(of option: SocketOptionKey<Value>) throws(SystemError) -> Value? {
        switch self {
        case .nothing: nil
        case .listening(let listener, _): try listener.value(of: option)
        case .connection(let connection):
            try connection.record.withLock { record throws(SystemError) in
                try record.live.descriptor?.value(of: option)
            }
        }
    }
}

extension AsyncSocketError {
    init(refusal error: SystemError, operation: AsyncSocketError.Operation) {
        self.init(error, operation: operation)
        guard Self.misuses.contains(error.errno) else { return }
        code = .badParameter
        fault = .caller
    }

    private static let misuses: Set<Int32> = [EINVAL, EOPNOTSUPP, ENOPROTOOPT, EDOM]
}

// MARK: - Multipath TCP

extension AsyncSocket {
    /// Whether Multipath TCP (RFC 8684) is requested, which may use several network paths for one connection.
    /// Defaults to `false`. A change takes effect at the next `connect` or `accept`.
    ///
    /// If the kernel does not support Multipath TCP (`net.mptcp.enabled`) or the peer does not negotiate it,
    /// the connection silently falls back to plain TCP: check `isMultipathTCP`. The system's path manager
    /// selects the paths (ip-mptcp(8)). A Multipath TCP socket lacks some TCP options, for which `setOption`
    /// throws.
    public var usesMultipathTCP: Bool {
        get { state.withLock { $0.options.usesMultipathTCP } }
        set { state.withLock { $0.options.usesMultipathTCP = newValue } }
    }

    /// Whether a connection is established and both sides have agreed on Multipath TCP.
    public var isMultipathTCP: Bool {
        connection?.record.withLock { $0.live.descriptor?.isMultipath } ?? false
    }
}
