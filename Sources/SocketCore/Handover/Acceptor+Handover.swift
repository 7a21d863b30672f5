internal import Glibc
internal import SocketBuffers

// A listening socket that another process takes over.
extension Acceptor {
    /// The path of the file that this acceptor removes when it closes.
    package var filePath: String? { state.withLock { $0.file?.pathText } }

    /// Gives up the file of a Unix-domain socket, which then belongs to another process with the descriptor.
    package func leaveFile() { state.withLock { $0.file = nil } }

    /// Takes over the file of an inherited Unix-domain socket, after the previous owner has given it up.
    package func takeFile() {
        guard let inheritedPath else { return }
        state.withLock { state in
            switch state.phase {
            case .bound, .accepting, .pausing: state.file = UnixSocketFile(ofSocketAt: inheritedPath)
            case .closed, .retired: break
            }
        }
    }

    /// Returns a duplicate of the descriptor, which the caller must close, or `nil` if the descriptor is
    /// closed.
    package func duplicate() throws(SystemError) -> CInt? {
        try withDescriptor { (descriptor) throws(SystemError) in
            let number = fcntl(descriptor.rawValue, F_DUPFD_CLOEXEC, 0)
            guard number >= 0 else { throw SystemError("fcntl(F_DUPFD_CLOEXEC)") }
            return number
        }
    }
}
