import Foundation
import Glibc
import Testing

@testable import SocketCore

/// What a listener makes of errors and of files that others change meanwhile.
@Suite struct ListeningTests {
    private enum Meaning {
        case pause, nothingThere, nextOne
    }

    /// No test can have the machine run out of these; `EngineProbe descriptors` has a process run out of
    /// descriptors.
    @Test(arguments: [
        (EMFILE, Meaning.pause), (ENFILE, .pause), (ENOBUFS, .pause), (ENOMEM, .pause),
        (EAGAIN, .nothingThere), (EBADF, .nothingThere), (EINVAL, .nothingThere),
        (ECONNABORTED, .nextOne), (EPROTO, .nextOne), (EPERM, .nextOne), (ENETDOWN, .nextOne), (EHOSTUNREACH, .nextOne),
    ])
    private func eachErrorOfAcceptingHasItsMeaning(_ number: CInt, _ expected: Meaning) {
        let found: Meaning? =
            switch SocketDescriptor.AcceptAnswer(failure: number) {
            case .accepted: nil
            case .none: .nothingThere
            case .skipped: .nextOne
            case .exhausted(let error): error.errno == number ? .pause : nil
            }
        #expect(found == expected)
    }

    /// The dead socket that was found is gone, and another program listens there now.
    @Test func aSocketThatAppearsDuringTheLookStays() throws {
        let path = "/tmp/as-\(UUID().uuidString.prefix(8))"
        let address = try #require(SocketAddress(unixPath: path))
        defer { unlink(path) }
        close(try Self.bindSocket(to: address))
        var living: CInt = -1
        defer { close(living) }
        let error = #expect(throws: SystemError.self) {
            try UnixSocketFile.clear(path.utf8CString.map { $0 }, address) { _, _ in
                // The old name is kept, so that the new file cannot get the number of the old one.
                rename(path, path + ".old")
                living = (try? Self.bindSocket(to: address)) ?? -1
            }
        }
        unlink(path + ".old")
        #expect(living >= 0)
        #expect(error?.errno == EADDRINUSE)
        #expect(access(path, F_OK) == 0)
    }

    @Test func aDeadSocketIsRemoved() throws {
        let path = "/tmp/as-\(UUID().uuidString.prefix(8))"
        let address = try #require(SocketAddress(unixPath: path))
        close(try Self.bindSocket(to: address))
        try UnixSocketFile.clear(path.utf8CString.map { $0 }, address)
        #expect(access(path, F_OK) != 0)
    }

    private static func bindSocket(to address: SocketAddress) throws -> CInt {
        let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
        let result = address.withSockaddr { bind(descriptor, $0, $1) }
        try #require(result == 0)
        return descriptor
    }
}
