import AsyncSocketsTesting
import Foundation
import Glibc
import Testing

@testable import SocketCore

/// How a listener handles errors, and files that are changed by others meanwhile.
@Suite struct ListeningTests {
    private enum Meaning {
        case pause, nothingThere, nextOne, refusal, end
    }

    /// A test cannot exhaust the machine's resources. `EngineProbe descriptors` exhausts those of a process.
    @Test(arguments: [
        (EMFILE, Meaning.pause), (ENFILE, .pause), (ENOBUFS, .pause), (ENOMEM, .pause),
        (EAGAIN, .nothingThere), (EBADF, .end), (EINVAL, .end), (ENOTSOCK, .end), (ENOSYS, .end), (EOPNOTSUPP, .end),
        (EFAULT, .end), (EACCES, .refusal), (EPERM, .refusal), (EIO, .refusal), (ENOSPC, .refusal),
        (ECONNABORTED, .nextOne), (EPROTO, .nextOne), (ENETDOWN, .nextOne), (EHOSTUNREACH, .nextOne), (ENONET, .nextOne),
        (ENOPROTOOPT, .nextOne), (ENETUNREACH, .nextOne), (EHOSTDOWN, .nextOne), (ETIMEDOUT, .nextOne),
        (ECONNRESET, .nextOne),
    ])
    private func eachErrorOfAcceptingHasItsMeaning(_ number: CInt, _ expected: Meaning) {
        let found: Meaning? =
            switch SocketDescriptor.AcceptAnswer(failure: number) {
            case .accepted: nil
            case .none: .nothingThere
            case .skipped(let error): error.errno == number ? .nextOne : nil
            case .refused(let error): error.errno == number ? .refusal : nil
            case .failed(let error): error.errno == number ? .end : nil
            case .exhausted(let error): error.errno == number ? .pause : nil
            }
        #expect(found == expected)
    }

    /// The stale socket is gone, and another program is now listening there.
    @Test func aSocketThatAppearsDuringTheLookStays() throws {
        let path = "/tmp/as-\(UUID().uuidString.prefix(8))"
        let address = try #require(SocketEndpoint(unixPath: path))
        defer { unlink(path) }
        _ = try RawSocket.bound(to: address)
        var living: RawSocket?
        let error = #expect(throws: SystemError.self) {
            try UnixSocketFile.clear(path.utf8CString.map { $0 }, address) { _, _ in
                // Keeps the old file, so that the new file cannot get its inode number.
                rename(path, path + ".old")
                living = try? RawSocket.bound(to: address)
            }
        }
        unlink(path + ".old")
        #expect(living != nil)
        #expect(error?.errno == EADDRINUSE)
        #expect(access(path, F_OK) == 0)
        withExtendedLifetime(living) {}
    }

    @Test func aDeadSocketIsRemoved() throws {
        let path = "/tmp/as-\(UUID().uuidString.prefix(8))"
        let address = try #require(SocketEndpoint(unixPath: path))
        _ = try RawSocket.bound(to: address)
        try UnixSocketFile.clear(path.utf8CString.map { $0 }, address)
        #expect(access(path, F_OK) != 0)
    }
}
