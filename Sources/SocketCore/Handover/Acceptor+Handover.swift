internal import Glibc
internal import SocketBuffers

// A listening socket that another process takes over.
extension Acceptor {
    private static func isOpen(_ state: State) -> Bool {
        switch state.phase {
        case .bound, .accepting, .pausing: true
        case .closed, .retired: false
        }
    }

    /// Gives up the file of a Unix-domain socket, so that it is not removed.
    package func lendFile() -> UnixSocketFile? { state.withLock { $0.file.take() } }

    /// Takes back a file. Removes it if this acceptor has closed in the meantime.
    package func returnFile(_ file: UnixSocketFile?) {
        guard let file else { return }
        let isOpen = state.withLock { state in
            if Self.isOpen(state) { state.file = file }
            return Self.isOpen(state)
        }
        if !isOpen { file.remove() }
    }

    /// Takes over the file of an inherited Unix-domain socket.
    package func takeFile() { returnFile(inheritedFile) }

    /// Returns a duplicate of the descriptor, which the caller must close, or `nil` if the descriptor is
    /// closed.
    package func duplicate() throws(SystemError) -> CInt? {
        try withDescriptor { (descriptor) throws(SystemError) in try descriptor.duplicate() }
    }
}

extension SocketDescriptor {
    /// Returns a duplicate, which the caller must close.
    package func duplicate() throws(SystemError) -> CInt {
        let number = fcntl(rawValue, F_DUPFD_CLOEXEC, 0)
        guard number >= 0 else { throw SystemError("fcntl(F_DUPFD_CLOEXEC)") }
        return number
    }
}
