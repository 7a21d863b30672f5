import AsyncSocketsTesting
import COpenSSL
import Glibc
import SocketTLS
import Testing

/// Files of the wrong kind: pipes, folders, devices.
@Suite struct OddFileTests {
    /// A named pipe that is deleted with its object.
    private final class Pipe {
        let path = "/tmp/SocketTLSTests-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).pem"

        init() throws {
            guard mkfifo(path, 0o600) == 0 else { throw TestFailure(what: "mkfifo") }
        }

        deinit { unlink(path) }
    }

    /// Opening a pipe without a writer would block.
    @Test func aPipeIsRefusedAndNotWaitedFor() throws {
        let pipe = try Pipe()
        #expect(throws: TLSError.self) { try TLSCertificate.certificates(file: pipe.path) }
        #expect(throws: TLSError.self) { try TLSPrivateKey(file: pipe.path) }
        #expect(throws: TLSError.self) { try TLSIdentity(pkcs12File: pipe.path, passphrase: nil) }
        #expect(throws: TLSError.self) { try TLSTicketKeyFile(path: pipe.path) }
        for change: (inout TLSClientSettings) -> Void in [
            { $0.trustRoots = .file(path: pipe.path) }, { $0.values.rules.revocationLists = [.file(path: pipe.path)] },
        ] {
            var settings = TLSSettings.client(serverName: Fixture.host)
            change(&settings)
            let error = #expect(throws: TLSError.self) { try TLSContext.context(for: settings) }
            #expect(error?.message.contains("is not a regular file") == true)
        }
    }

    @Test(arguments: ["/tmp", "/dev/null", "/dev/zero"]) func whatIsNoFileIsRefused(_ path: String) throws {
        let error = #expect(throws: TLSError.self) { try TLSCertificate.certificates(file: path) }
        #expect(error?.message.contains("is not a regular file") == true)
    }

    /// A path to a very large file must not use up memory.
    @Test func aFileHasALimit() throws {
        let file = try TemporaryFile("")
        let limit = 64 * 1024 * 1024
        for (size, isTooLarge) in [(limit, false), (limit + 1, true)] {
            #expect(truncate(file.path, size) == 0)
            let error = #expect(throws: TLSError.self) { try TLSCertificate.certificates(file: file.path) }
            #expect(error?.message.contains("is larger than \(limit) bytes") == isTooLarge, "\(size)")
        }
    }

    /// Writing to a pipe without a reader would terminate the process (SIGPIPE).
    @Test func aLogOfKeysIsNoPipe() throws {
        let pipe = try Pipe()
        let reader = open(pipe.path, O_RDONLY | O_NONBLOCK)
        defer { close(reader) }
        var settings = TLSSettings.client(serverName: Fixture.host)
        settings.keyLogFile = pipe.path
        let error = #expect(throws: TLSError.self) { try TLSContext.context(for: settings) }
        #expect(error?.code == .invalidSettings && error?.message.contains("keyLogFile") == true)
    }

    @Test(arguments: versions) func aFullDiskCostsOnlyLines(_ version: TLSProtocolVersion) throws {
        var fixture = try Fixture(version)
        (fixture.client.keyLogFile, fixture.server.keyLogFile) = ("/dev/full", "/dev/full")
        let pair = try fixture.pair()
        pair.shakeHands()
        #expect(pair.isComplete)
        #expect(try pair.exchange([1, 2, 3], from: .client) == [1, 2, 3])
    }

    /// A file that is written twice within a second gets a different stamp.
    @Test func aChangeWithinASecondIsSeen() throws {
        let file = try TemporaryFile("roots")
        func stamp(_ nanoseconds: Int) -> FileStamp {
            let times = [timespec](repeating: timespec(tv_sec: 1_700_000_000, tv_nsec: nanoseconds), count: 2)
            #expect(utimensat(AT_FDCWD, file.path, times, 0) == 0)
            return FileStamp(path: file.path)
        }
        let first = stamp(0)
        #expect(stamp(500_000_000) != first)
        #expect(stamp(0) == first)
    }
}
