import Foundation
import Glibc
import SocketTestSupport

/// The standard input of a program.
///
/// A socket instead of a pipe, because writing to a pipe without a reader raises SIGPIPE, which would
/// terminate the test process.
final class ProgramInput: Sendable {
    private let ours: FileHandle
    /// The program's end.
    let theirs: FileHandle

    init() throws {
        var ends: [Int32] = [-1, -1]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw Unexpected(description: "socketpair: errno \(errno)")
        }
        ours = FileHandle(fileDescriptor: ends[0], closeOnDealloc: true)
        theirs = FileHandle(fileDescriptor: ends[1], closeOnDealloc: true)
    }

    /// Called when the program has started and has its end.
    func begin() throws {
        try theirs.close()
    }

    /// Ignored if the program has exited.
    func write(_ text: String) throws {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { send(ours.fileDescriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if count < 0, errno == EINTR { continue }
            if count < 0, errno == EPIPE || errno == ECONNRESET { return }
            guard count > 0 else { throw Unexpected(description: "the standard input of a program: errno \(errno)") }
            rest = rest.dropFirst(count)
        }
    }

    func end() throws {
        try ours.close()
    }
}
