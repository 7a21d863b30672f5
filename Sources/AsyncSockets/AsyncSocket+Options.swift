internal import Dispatch
internal import Glibc
internal import SocketBuffers
public import SocketCore

extension AsyncSocket {
    /// Sets an option of the kernel: `try socket.setOption(.keepAlive, to: true)`.
    ///
    /// On an established connection or a listener it takes effect before the call returns. In any case the
    /// socket keeps the value for the descriptors that it gets later, before they are bound or connected, and
    /// for the connections that it accepts from now on. You may call this from any thread, and it does not
    /// wait. If the kernel later refuses a kept value, the attempt to connect ends, or `accept` throws.
    ///
    /// - Throws: `.badParameter` when the value is invalid or this kind of socket lacks the option (`EINVAL`,
    ///   `EDOM`, `EOPNOTSUPP`, `ENOPROTOOPT`), `.system` when the kernel refuses it, for example with
    ///   `EPERM`; `errno` says which. Nothing is kept then.
    public func setOption<Value>(_ option: SocketOption<Value>, to value: Value) throws(AsyncSocketError) {
        do throws(SystemError) {
            try state.withLock { state throws(SystemError) in
                try state.occupation.set(option, to: value)
                try state.options.set(option, to: value)
            }
        } catch {
            throw AsyncSocketError(refusal: error, operation: "setOption")
        }
    }

    /// The value of an option: the kernel's for the connection or the listener, otherwise the one that was
    /// set here.
    ///
    /// You may call this from any thread, and it does not wait.
    ///
    /// - Throws: `.badConfiguration` when there is neither a descriptor nor a value that was set here, and
    ///   otherwise what `setOption(_:to:)` throws.
    public func option<Value>(_ option: SocketOption<Value>) throws(AsyncSocketError) -> Value {
        do throws(SystemError) {
            let value = try state.withLock { state throws(SystemError) in
                try state.occupation.value(of: option) ?? state.options.value(of: option)
            }
            if let value { return value }
        } catch {
            throw AsyncSocketError(refusal: error, operation: "option")
        }
        throw .badConfiguration("option", "the socket has no connection, and \(option.name) was not set: set it first")
    }

    /// A value of your own to keep with the socket. The socket does nothing with it; accepted sockets start
    /// with nil.
    public var userData: (any Sendable)? {
        get { state.withLock { $0.extras?.value.userData } }
        set { changeExtras { $0.userData = newValue } }
    }

    func changeExtras(_ change: (inout SocketExtras) -> Void) {
        // The old value may run code of the user's when it goes: not under the lock.
        _ = state.withLock { state in
            let old = state.extras
            var extras = old?.value ?? SocketExtras()
            change(&extras)
            state.extras = extras.isEmpty ? nil : CopyOnWrite(extras)
            return old
        }
    }

    /// Runs `body` with the descriptor while nothing else happens to the connection: for system calls that
    /// this library does not offer.
    ///
    /// The call waits for nothing. `body` runs now, on this thread; while another thread is busy with the
    /// socket, it runs on that thread, after its work. With a socket queue it runs there. Be quick, and do
    /// not block. The descriptor is valid inside `body` only. Do not close it, read from it, write to it, or
    /// make it blocking. A listener passes a duplicate of one of its descriptors.
    ///
    /// - Parameter body: Gets the descriptor; nil when the socket is not in use or not connected yet.
    public func perform(_ body: @escaping @Sendable (_ descriptor: Int32?) -> Void) {
        switch state.withLock({ $0.occupation }) {
        case .connection(let connection): connection.post(.perform(body))
        case .listening(let listener, _): runOnSocketQueue { Self.perform(body, on: listener) }
        case .nothing: runOnSocketQueue { Self.call(body, with: nil) }
        }
    }

    /// Passes a duplicate descriptor, since the listener may close its own at any time.
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
    fileprivate func set<Value>(_ option: SocketOption<Value>, to value: Value) throws(SystemError) {
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

    fileprivate func value<Value>(of option: SocketOption<Value>) throws(SystemError) -> Value? {
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
    /// The kernel has refused what the caller asked for.
    init(refusal error: SystemError, operation: String) {
        self.init(error, operation: operation)
        guard Self.misuses.contains(error.errno) else { return }
        code = .badParameter
        blame = .caller
    }

    private static let misuses: Set<Int32> = [EINVAL, EOPNOTSUPP, ENOPROTOOPT, EDOM]
}

// MARK: - Multipath TCP

extension AsyncSocket {
    /// Whether to ask for Multipath TCP (RFC 8684), which may use several paths for one connection. False by
    /// default. A change takes effect at the next `connect` or `accept`.
    ///
    /// Where the kernel has no Multipath TCP (`net.mptcp.enabled`) or the peer does not take part, the
    /// connection is plain TCP, and no error says so: ask `isMultipathTCP`. The system's path manager chooses
    /// the paths (ip-mptcp(8)). Such a socket lacks some options of TCP, for which `setOption` throws.
    public var usesMultipathTCP: Bool {
        get { state.withLock { $0.options.usesMultipathTCP } }
        set { state.withLock { $0.options.usesMultipathTCP = newValue } }
    }

    /// True while a connection is established for which both sides agreed on Multipath TCP.
    public var isMultipathTCP: Bool {
        connection?.record.withLock { $0.live.descriptor?.isMultipath } ?? false
    }
}
