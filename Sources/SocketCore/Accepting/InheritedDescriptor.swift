// Rules of inherited descriptors (sd_listen_fds(3)):
//  1. The environment is read once in a process. If anything in it is wrong, nothing is taken.
//  2. All are made close-on-exec at once, claimed or not. Each is claimed once; a claimed one has one owner,
//     which closes it.
//  3. The socket behind a descriptor belongs to the service manager too: closing ours leaves its copy alone,
//     and shutdown(2) would not. Nothing here calls it.
//  4. The environment is not changed, since other threads may read it. Children do not take it for theirs:
//     `LISTEN_PID` is not their number.

internal import CLinux
internal import Glibc
internal import SocketBuffers

/// A descriptor that a service manager, such as systemd, has opened and handed to this process: mostly a
/// listening socket (socket activation, sd_listen_fds(3)).
///
/// Its end closes it, unless it has been handed on. The manager keeps its own copy, and a socket goes on
/// listening there.
public final class InheritedDescriptor: Sendable {
    /// The name that the manager gave it (`FileDescriptorName=` of systemd.socket(5)); `unknown` when it gave
    /// none to any. Several may have one name.
    public let name: String

    /// Its number; nil when it has been handed on.
    private let number: Locked<CInt?>

    /// Takes over an open descriptor, and makes it close-on-exec.
    package init(_ number: CInt, name: String) {
        // This does not fail for an open descriptor (fcntl(2)).
        _ = fcntl(number, F_SETFD, FD_CLOEXEC)
        self.name = name
        self.number = Locked(number)
    }

    deinit { if let number = relinquish() { close(number) } }

    /// Hands the descriptor on: it is yours, and you close it. It is close-on-exec and non-blocking.
    ///
    /// Use it for what this library has no sockets for, such as datagrams. Do not call shutdown(2) on a
    /// listening socket: it would end the manager's copy too.
    ///
    /// - Returns: Its number; nil when it has been handed on before.
    public func relinquish() -> Int32? {
        number.withLock { $0.take() }
    }

    /// The address that its socket is bound to; nil when it is not a socket, has no address, or has been
    /// handed on.
    public var localAddress: SocketAddress? {
        number.withLock { number in
            guard let number else { return nil }
            let descriptor = SocketDescriptor(adopting: number)
            defer { descriptor.relinquish() }
            return descriptor.localAddress
        }
    }

    /// Hands on a listening socket.
    ///
    /// - Throws: EBADF when it has been handed on before, and what `checkListening` throws; then it stays
    ///   here.
    package func takeListener() throws(SystemError) -> SocketDescriptor {
        SocketDescriptor(
            takingOver: try take("accept4") { (number) throws(SystemError) in try SocketDescriptor.checkListening(number) })
    }

    /// Hands on a UDP socket.
    ///
    /// - Throws: EBADF when it has been handed on before, and what `DatagramDescriptor.check` throws; then it
    ///   stays here.
    package func takeDatagramSocket(
        setting options: SocketOptionSet = SocketOptionSet()
    ) throws(SystemError) -> DatagramDescriptor {
        try DatagramDescriptor(
            takingOver: take("recvmmsg") { (number) throws(SystemError) in
                try DatagramDescriptor.check(number, setting: options)
            })
    }

    /// - Parameter call: The call that needs the descriptor, for the error.
    private func take(_ call: String, check: (CInt) throws(SystemError) -> Void) throws(SystemError) -> CInt {
        try number.withLock { (number) throws(SystemError) in
            guard let current = number else { throw fault(SystemError(call, errno: EBADF), "it has been handed on already") }
            do throws(SystemError) {
                try check(current)
            } catch {
                throw fault(error, error.description)
            }
            number = nil
            return current
        }
    }

    /// On a claimed one only: the manager and other processes may share the file.
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

/// Why the descriptors that a service manager has handed to this process cannot be used.
public struct InheritanceError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of the failure. New kinds may be added: a switch needs a `default`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        /// The name of the constant.
        public let description: String

        private init(_ name: String) {
            description = name
        }

        /// A variable of the environment is not what sd_listen_fds(3) says; the program that started this
        /// process is to blame.
        public static let malformedEnvironment = Code("malformedEnvironment")
        /// A descriptor that the environment announces is not open.
        public static let missingDescriptor = Code("missingDescriptor")
        /// This process has claimed the descriptors already; its own code is to blame.
        public static let alreadyClaimed = Code("alreadyClaimed")
    }

    /// The kind of the failure.
    public let code: Code
    /// One sentence that says what failed.
    public let message: String

    /// An error as this library throws it: for tests of code that handles errors.
    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    /// The message and the code.
    public var description: String { "\(message) [\(code)]" }
}
