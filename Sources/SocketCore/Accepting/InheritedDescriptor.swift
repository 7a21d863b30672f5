// Rules of inherited descriptors (sd_listen_fds(3)):
//  1. The environment is read once per process. If any part is invalid, no descriptors are taken.
//  2. All descriptors are made close-on-exec immediately, whether or not they are claimed. Each descriptor
//     can be claimed once. A claimed descriptor has one owner, which closes it.
//  3. The service manager and this process share the underlying socket. Closing our descriptor does not
//     affect the manager's copy, but shutdown(2) would, so it is never called on a listening socket.
//  4. The environment is not changed, because other threads may be reading it. Child processes ignore the
//     variables, because `LISTEN_PID` does not match their process ID.

internal import CLinux
internal import Glibc
internal import SocketBuffers

/// A descriptor that a service manager such as systemd opened and passed to this process, typically a
/// listening socket (socket activation, sd_listen_fds(3)).
///
/// The descriptor is closed when this object is released, unless it was handed over. The service manager
/// keeps its own copy, so a listening socket continues to listen.
public final class InheritedDescriptor: Sendable {
    /// The name that the service manager gave the descriptor (`FileDescriptorName=` of systemd.socket(5)),
    /// or `unknown` if the manager passed no names. Several descriptors may have the same name.
    public let name: String

    /// The socket file that this process may take over. `nil` if another process removes it.
    package let file: UnixSocketFile?

    /// `nil` if the descriptor was handed over.
    private let number: Locked<CInt?>

    /// Takes over an open descriptor and makes it close-on-exec.
    package init(_ number: CInt, name: String, file: UnixSocketFile.Place? = nil) {
        // Cannot fail for an open descriptor (fcntl(2)).
        _ = fcntl(number, F_SETFD, FD_CLOEXEC)
        (self.name, self.file) = (name, file.map { UnixSocketFile($0) })
        self.number = Locked(number)
    }

    deinit { if let number = relinquish() { close(number) } }

    /// Hands over the descriptor to the caller, who must close it. It is close-on-exec and non-blocking.
    ///
    /// Use this for descriptors that this library does not support. Do not call shutdown(2) on a listening
    /// socket, because this would also shut down the manager's copy.
    ///
    /// - Returns: The descriptor, or `nil` if it was already handed over.
    public func relinquish() -> Int32? {
        number.withLock { $0.take() }
    }

    /// The address that the socket is bound to. `nil` if the descriptor is not a socket, has no address, or
    /// was handed over.
    public var localAddress: SocketEndpoint? {
        number.withLock { number in
            guard let number else { return nil }
            let descriptor = SocketDescriptor(adopting: number)
            defer { descriptor.relinquish() }
            return descriptor.localAddress
        }
    }

    /// Hands over a listening socket.
    ///
    /// - Throws: EBADF if the descriptor was already handed over, and the errors of `checkListening`, in
    ///   which case this object keeps the descriptor.
    package func takeListener() throws(SystemError) -> SocketDescriptor {
        SocketDescriptor(
            takingOver: try take("accept4") { (number) throws(SystemError) in try SocketDescriptor.checkListening(number) })
    }

    /// Hands over a UDP socket.
    ///
    /// - Throws: EBADF if the descriptor was already handed over, and the errors of
    ///   `DatagramDescriptor.check`, in which case this object keeps the descriptor.
    ///
    /// - Parameter isServer: Whether the socket must be bound and not connected.
    package func takeDatagramSocket(
        setting options: SocketOptionSet = SocketOptionSet(), isServer: Bool = false
    ) throws(SystemError) -> DatagramDescriptor {
        try DatagramDescriptor(
            takingOver: take("recvmmsg") { (number) throws(SystemError) in
                try DatagramDescriptor.check(number, setting: options, isServer: isServer)
            })
    }

    /// - Parameter call: The system call named in an error.
    private func take(_ call: String, check: (CInt) throws(SystemError) -> Void) throws(SystemError) -> CInt {
        try number.withLock { (number) throws(SystemError) in
            guard let current = number else { throw fault(SystemError(call, errno: EBADF), "already handed over") }
            do throws(SystemError) {
                try check(current)
            } catch {
                throw fault(error, error.description)
            }
            number = nil
            return current
        }
    }

    /// Called only for a claimed descriptor, because the flag is shared with the manager and other
    /// processes.
    func setNonBlocking() {
        number.withLock { number in
            guard let number else { return }
            _ = fcntl(number, F_SETFL, fcntl(number, F_GETFL) | CInt(SOCK_NONBLOCK.rawValue))
        }
    }

    private func fault(_ error: SystemError, _ sentence: String) -> SystemError {
        SystemError(error.call, errno: error.errno, detail: "the inherited descriptor \"\(name)\": \(sentence)")
    }
}

/// The reason why descriptors passed by a service manager cannot be used.
public struct InheritedDescriptorError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure. New kinds may be added, so a switch needs a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String

        private init(_ name: String) {
            description = name
        }

        /// An environment variable does not conform to sd_listen_fds(3). This is the fault of the program
        /// that started this process.
        public static let malformedEnvironment = Code("malformedEnvironment")
        /// A descriptor announced in the environment is not open.
        public static let missingDescriptor = Code("missingDescriptor")
        /// This process has already claimed the descriptors. This is a programming error.
        public static let alreadyClaimed = Code("alreadyClaimed")
    }

    /// The kind of failure.
    public let code: Code
    /// A one-sentence description of the failure.
    public let message: String

    /// Creates an error like those thrown by this library, for testing error handling.
    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    /// The message followed by the code.
    public var description: String { "\(message) [\(code)]" }
}
