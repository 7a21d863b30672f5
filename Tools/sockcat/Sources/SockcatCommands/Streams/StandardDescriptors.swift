internal import Glibc

/// The descriptors 0, 1 and 2, which a program can inherit closed.
enum StandardDescriptors {
    /// Opens the descriptors that are closed. Otherwise the next connection or event loop would get their
    /// numbers, and the program would read and write it as its input and output.
    ///
    /// The new descriptors cannot be used: reading standard input and writing standard output fails as if
    /// they were closed.
    static func reserve() {
        for (descriptor, mode) in [(STDIN_FILENO, O_WRONLY), (STDOUT_FILENO, O_RDONLY), (STDERR_FILENO, O_RDONLY)]
        where fcntl(descriptor, F_GETFD) < 0 {
            // The kernel returns the lowest free number, which is this one.
            _ = open("/dev/null", mode)
        }
    }
}
