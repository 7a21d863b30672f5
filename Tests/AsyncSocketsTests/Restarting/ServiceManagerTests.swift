import AsyncSocketsTesting
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

@testable import AsyncSockets
@testable import SocketCore

/// What a service manager receives. A datagram socket takes the place of systemd's.
@Suite(.timeLimit(.patient)) struct ServiceManagerTests {
    /// A bound datagram socket.
    private final class Manager: Sendable {
        private let descriptor: CInt

        init(at address: SocketEndpoint) throws {
            descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue), 0)
            let result = address.withSockaddr { [descriptor] in bind(descriptor, $0, $1) }
            try #require(result == 0)
        }

        deinit { close(descriptor) }

        func message() -> String { receive().text }

        /// Receives a message with its descriptors.
        func receive() -> (text: String, descriptors: [CInt]) {
            var (bytes, room) = ([UInt8](repeating: 0, count: 4096), [UInt64](repeating: 0, count: 64))
            return bytes.withUnsafeMutableBytes { bytes in
                room.withUnsafeMutableBytes { room in
                    var part = iovec(iov_base: bytes.baseAddress, iov_len: bytes.count)
                    var message = msghdr()
                    (message.msg_control, message.msg_controllen) = (room.baseAddress, room.count)
                    let count = withUnsafeMutablePointer(to: &part) { part in
                        (message.msg_iov, message.msg_iovlen) = (part, 1)
                        return recvmsg(descriptor, &message, 0)
                    }
                    var reader = ControlMessageReader(UnsafeRawBufferPointer(rebasing: room[..<message.msg_controllen]))
                    let descriptors = reader.next().map { [$0.value(as: CInt.self) ?? -1] } ?? []
                    return (String(decoding: bytes.prefix(max(count, 0)), as: UTF8.self), descriptors)
                }
            }
        }
    }

    private let folder: TemporaryFolder

    init() throws { folder = try TemporaryFolder() }

    @Test func notificationsAreAssignments() throws {
        let manager = try Manager(at: folder.address("notify"))
        let own = try #require(ServiceManager(environment: ["NOTIFY_SOCKET": folder.path("notify")]))
        try own.notify(.ready, .mainProcess, .status("two\nlines"))
        #expect(manager.message() == "READY=1\nMAINPID=\(getpid())\nSTATUS=two lines")
        try own.notify(.reloading)
        #expect(manager.message().hasPrefix("RELOADING=1\nMONOTONIC_USEC="))
        try own.notify(.stopping)
        #expect(manager.message() == "STOPPING=1")
        #expect(own.watchdogInterval == nil)
    }

    @Test func anAbstractNameIsAnAddress() throws {
        let name = "asyncsockets-\(UInt64.random(in: .min ... .max))"
        let manager = try Manager(at: #require(SocketEndpoint(abstractName: name)))
        try #require(ServiceManager(environment: ["NOTIFY_SOCKET": "@" + name])).notify(.ready)
        #expect(manager.message() == "READY=1")
    }

    /// The manager receives the listening socket itself.
    @Test func aListenerIsStored() async throws {
        let path = folder.path("packets")
        let manager = try Manager(at: folder.address("notify"))
        let own = try #require(ServiceManager(environment: ["NOTIFY_SOCKET": folder.path("notify")]))
        let listener = try SocketListener(path: path)
        try own.store(listener, named: "greeter")
        let (text, descriptors) = manager.receive()
        #expect(text == "FDSTORE=1\nFDNAME=greeter")
        let stored = try InheritedDescriptor(#require(descriptors.first), name: "greeter")
        #expect(descriptors.count == 1 && stored.localAddress == listener.localAddress)
        // The file stays for the next process.
        await listener.close()
        let next = try SocketListener(inherited: [stored])
        let client = AsyncSocket()
        try await client.connect(toPath: path)
        await next.close(timeout: .zero)
        try own.removeStored(named: "greeter")
        #expect(manager.message() == "FDSTOREREMOVE=1\nFDNAME=greeter")
        for name in ["", "a:b", "a\nREADY=1", "ä", String(repeating: "a", count: 256)] {
            #expect(throws: AsyncSocketError.self) { try own.store(listener, named: name) }
        }
    }

    @Test func theWatchdogIsMeantForOneProcess() throws {
        func interval(_ change: [String: String]) -> Duration? {
            ServiceManager(environment: ["NOTIFY_SOCKET": "/run/notify"].merging(change) { $1 })?.watchdogInterval
        }
        #expect(interval(["WATCHDOG_USEC": "3000000"]) == .seconds(3))
        #expect(interval(["WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "\(getpid())"]) == .seconds(3))
        #expect(interval(["WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"]) == nil)
        for value in ["0", "-1", "", "soon"] { #expect(interval(["WATCHDOG_USEC": value]) == nil) }
    }

    @Test func theManagerIsKeptInformed() async throws {
        let manager = try Manager(at: folder.address("notify"))
        let own = try #require(
            ServiceManager(environment: ["NOTIFY_SOCKET": folder.path("notify"), "WATCHDOG_USEC": "2000"]))
        let keeping = Task { try await own.keepAlive() }
        let messages = await Task.detached { (0..<3).map { _ in manager.message() } }.value
        #expect(messages == ["WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"])
        keeping.cancel()
        await #expect(throws: CancellationError.self) { try await keeping.value }
    }

    @Test func withoutAManagerThereIsNone() {
        for value in ["", "relative", "vsock:2:1234"] { #expect(ServiceManager(environment: ["NOTIFY_SOCKET": value]) == nil) }
        #expect(ServiceManager(environment: [:]) == nil)
        let absent = ServiceManager(environment: ["NOTIFY_SOCKET": folder.path("none")])
        #expect(throws: AsyncSocketError.self) { try absent?.notify(.ready) }
    }
}
