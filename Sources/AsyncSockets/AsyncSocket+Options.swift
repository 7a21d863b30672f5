internal import Dispatch
internal import Glibc
internal import SocketBuffers
public import SocketCore

extension AsyncSocket {
    /// Sets an option of the kernel's: `try socket.setOption(.keepAlive, to: true)`.
    ///
    /// With a connection or a listener it counts at once when the call returns. In any case the value is kept
    /// for the descriptors that this socket gets later, before they are bound or connected, and for the
    /// connections that it accepts from now on. It may be called from any thread, and waits for no one. A
    /// value that is kept and that the kernel does not take later ends the attempt to connect, or makes
    /// `accept` throw.
    ///
    /// - Throws: `.badParameter` when the value makes no sense or the option is none of this kind of socket
    ///   (`EINVAL`, `EOPNOTSUPP`, `ENOPROTOOPT`), `.system` when the kernel refuses it, for example with
    ///   `EPERM`; `errno` says which. Nothing is kept then.
    public func setOption<Value>(_ option: SocketOption<Value>, to value: Value) throws(AsyncSocketError) {
        do throws(SystemError) {
            try state.withLock { state throws(SystemError) in
                try state.occupation.set(option, to: value)
                try state.options.set(option, to: value)
            }
        } catch {
            throw AsyncSocketError(option: error, operation: "setOption")
        }
    }

    /// The value of an option: of the connection or of the listener as the kernel has it, and otherwise the
    /// one that has been set here.
    ///
    /// It may be called from any thread, and waits for no one.
    ///
    /// - Throws: `.badConfiguration` when there is neither a descriptor nor a value that has been set, and
    ///   otherwise what `setOption(_:to:)` throws.
    public func option<Value>(_ option: SocketOption<Value>) throws(AsyncSocketError) -> Value {
        do throws(SystemError) {
            let value = try state.withLock { state throws(SystemError) in
                try state.occupation.value(of: option) ?? state.options.value(of: option)
            }
            if let value { return value }
        } catch {
            throw AsyncSocketError(option: error, operation: "option")
        }
        throw .badConfiguration("option", "the socket has no connection, and \(option.name) has not been set")
    }

    /// Anything of yours that should go with the socket. The socket does nothing with it; accepted sockets
    /// begin with nil.
    public var userData: (any Sendable)? {
        get { state.withLock { $0.userData?.value } }
        set {
            // The old value may run code of the user's when it goes: not under the lock.
            _ = state.withLock { state in
                let old = state.userData
                state.userData = newValue.map { CopyOnWrite($0) }
                return old
            }
        }
    }

    /// Runs `body` when nothing else happens to the connection, with its descriptor, for system calls that
    /// this library has no name for.
    ///
    /// It is posted to the socket's turn and never waited for: it runs now, on this thread, when no one else
    /// is busy with the socket, and otherwise after them, on their thread; on the socket queue, if there is
    /// one. Be quick, and do not block. The descriptor is valid inside `body` only. Do not close it, read
    /// from it, write to it, or make it blocking. A listener passes a duplicate of one of its descriptors.
    ///
    /// - Parameter body: Gets the descriptor, or nil when there is none: the socket is not in use, or not
    ///   connected yet.
    public func perform(_ body: @escaping @Sendable (_ descriptor: Int32?) -> Void) {
        switch state.withLock({ $0.occupation }) {
        case .connection(let connection): connection.post(.perform(body))
        case .listening(let listener, _): runOnSocketQueue { Self.perform(body, on: listener) }
        case .nothing: runOnSocketQueue { Self.call(body, with: nil) }
        }
    }

    /// With a second descriptor of the listener's socket, since the first one may be closed at any time.
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
    fileprivate init(option error: SystemError, operation: String) {
        self.init(error, operation: operation)
        guard Self.misuses.contains(error.errno) else { return }
        code = .badParameter
        blame = .caller
    }

    private static let misuses: Set<Int32> = [EINVAL, EOPNOTSUPP, ENOPROTOOPT, EDOM]
}

// MARK: - Multipath TCP

extension AsyncSocket {
    /// Whether to ask for Multipath TCP (RFC 8684), which may use several paths for one connection. False at
    /// first. It counts from the next `connect` or `accept` on.
    ///
    /// Where the kernel has none (`net.mptcp.enabled`), or the peer does not take part, it is TCP without a
    /// word: `isMultipathTCP` says which. Which paths are used is for the system's path manager to say
    /// (ip-mptcp(8)). Some options of TCP are unknown to such a socket, and `setOption` throws then.
    public var usesMultipathTCP: Bool {
        get { state.withLock { $0.options.usesMultipathTCP } }
        set { state.withLock { $0.options.usesMultipathTCP = newValue } }
    }

    /// True while a connection is up that both sides have agreed to make with Multipath TCP.
    public var isMultipathTCP: Bool {
        connection?.record.withLock { $0.live.descriptor?.isMultipath } ?? false
    }
}
