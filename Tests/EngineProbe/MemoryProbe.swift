internal import AsyncSockets
internal import AsyncSocketsTesting
internal import Dispatch
internal import Foundation
internal import Glibc
internal import SocketBuffers
internal import SocketCore
internal import SocketTLS
internal import SocketTestSupport

/// Many concurrent connections start a TLS handshake and disconnect. Their memory is returned to the system.
enum MemoryProbe {
    /// Retains the accepted sockets until they end, and starts a handshake on each.
    private final class Server: AsyncSocketDelegate, Sendable {
        let settings: TLSServerSettings
        let begun = Locked(0)
        private let open = Locked<[ObjectIdentifier: AsyncSocket]>([:])

        init(_ settings: TLSServerSettings) {
            self.settings = settings
        }

        var openCount: Int { open.withLock { $0.count } }

        func socket(_ socket: AsyncSocket, didAcceptNewSocket newSocket: AsyncSocket) {
            open.withLock { $0[ObjectIdentifier(newSocket)] = newSocket }
            // An error closes the connection, so nothing follows in plaintext.
            do { try newSocket.beginTLS(settings: settings) } catch { print("startTLS: \(error)") }
            begun.withLock { $0 += 1 }
        }

        func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
            // Released outside the lock.
            _ = open.withLock { $0.removeValue(forKey: ObjectIdentifier(socket)) }
        }
    }

    static func run() throws {
        let count = try usableConnectionCount()
        let authority = try CertificateAuthority()
        let server = Server(.server(identity: try authority.issue(.server(names: ["localhost"])).identity()))
        let listener = AsyncSocket(inlineDelegate: server)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        guard let address = listener.localAddress else { throw ProbeFailure(description: "no address") }
        let hello = try clientHello(authority)
        try burst(of: 16, to: address, hello, server)
        let before = try residentBytes()
        for round in 1...2 {
            // Counted before the burst, because a slow machine trims the heap before the last connection is
            // gone.
            let trims = HeapTrimmer.shared.count
            let peak = try burst(of: count, to: address, hello, server)
            guard peak > before + count << 13 else { throw ProbeFailure(description: "a burst needs no memory: \(peak)") }
            // What remains: tables that keep their size, and free memory that is too fragmented.
            let bound = before + (peak - before) / 4
            var after = try residentBytes()
            let start = Deadline.now
            print(
                "round \(round): \(before >> 20) MB, \(peak >> 20) with \(count) connections, \(after >> 20) when they had gone")
            while HeapTrimmer.shared.count == trims || (after > bound && !isSanitized),
                Deadline.now.seconds(since: start) < .patient
            {
                pause()
                after = try residentBytes()
            }
            print(
                "\(after >> 20) MB after \(HeapTrimmer.shared.count) trims, the longest of \(HeapTrimmer.shared.longestSeconds) s"
            )
            guard HeapTrimmer.shared.count > trims, after <= bound || isSanitized else {
                throw ProbeFailure(description: "more than \(bound >> 20) MB are left")
            }
        }
        withExtendedLifetime(listener) {}
    }

    /// Each requested trim is followed by a second one, even if no registration ends meanwhile, because a
    /// connection frees its memory slightly after its registration ends.
    static func trimTwice() throws {
        HeapTrimmer.shared.ask()
        try awaitTrims(2)
    }

    private static func awaitTrims(_ count: Int) throws {
        let start = Deadline.now
        while HeapTrimmer.shared.count < count {
            guard Deadline.now.seconds(since: start) < .patient else {
                throw ProbeFailure(description: "\(HeapTrimmer.shared.count) trims")
            }
            pause()
        }
    }

    /// Small blocks that a thread frees merge with the free end of its arena, which malloc_trim leaves alone.
    /// The first trim happens when half of them are free, as in a burst that drains slowly.
    static func trimTheEndOfAnArena() throws {
        let count = 400_000
        let before = try residentBytes()
        let reached = DispatchSemaphore(value: 0)
        let next = DispatchSemaphore(value: 0)
        func awaitThread() throws {
            guard reached.wait(timeout: .now() + Patience.seconds) == .success else {
                throw ProbeFailure(description: "the thread hangs")
            }
        }
        Thread {
            HeapTrimmer.shared.keepBlocks()
            let blocks = UnsafeMutableBufferPointer<UnsafeMutableRawPointer>.allocate(capacity: count)
            // In the first round the runtime allocates its metadata; the second allocates only blocks.
            for count in [8, count] {
                for index in 0..<count {
                    blocks[index] = .allocate(byteCount: 96, alignment: 16)
                    blocks[index].initializeMemory(as: UInt8.self, repeating: 1, count: 96)
                }
                reached.signal()
                next.wait()
                for part in [0..<count / 2, count / 2..<count] {
                    for index in part { blocks[index].deallocate() }
                    reached.signal()
                    next.wait()
                }
            }
            blocks.deallocate()
        }.start()
        for _ in 1...3 {
            try awaitThread()
            next.signal()
        }
        try awaitThread()
        let full = try residentBytes()
        guard full > before + 32 << 20 else { throw ProbeFailure(description: "the blocks need no memory: \(full)") }
        next.signal()
        try awaitThread()
        HeapTrimmer.shared.ask()
        try awaitTrims(1)
        next.signal()
        try awaitThread()
        try awaitTrims(2)
        let after = try residentBytes()
        // The exit of a thread frees more blocks.
        next.signal()
        guard after < before + 16 << 20 || isSanitized else {
            throw ProbeFailure(description: "\(before >> 20) MB before, \(full >> 20) filled, \(after >> 20) after two trims")
        }
        try keepBlocksOfALoop()
    }

    private final class Idler: EventHandler {
        func handle(_ events: LoopEvents) {}
    }

    private static func keepBlocksOfALoop() throws {
        guard HeapTrimmer.shared.blockCount == 0 else { throw ProbeFailure(description: "a block is left after two trims") }
        let loop = try SocketEventLoop()
        let registrations = (0..<128).map { _ in loop.register(Idler()) }
        loop.run {}
        let start = Deadline.now
        while HeapTrimmer.shared.blockCount == 0 {
            guard Deadline.now.seconds(since: start) < .patient else {
                throw ProbeFailure(description: "the loop keeps no block")
            }
            pause()
        }
        for registration in registrations { loop.deregister(registration) }
    }

    /// Connects, and returns the resident bytes while all connections are active. Then waits until they are
    /// gone.
    @discardableResult
    private static func burst(of count: Int, to address: SocketEndpoint, _ hello: [UInt8], _ server: Server) throws -> Int {
        let begunBefore = server.begun.withLock { $0 }
        var clients: [SocketDescriptor] = []
        for _ in 0..<count {
            let client = try SocketDescriptor(streamOf: .ipv4)
            if case .failed(let error) = client.connect(to: address) { throw error }
            try awaitEvent(POLLOUT, on: client)
            _ = hello.withUnsafeBytes { client.send($0) }
            clients.append(client)
        }
        // The server's response: it has generated keys and is waiting.
        for client in clients { try awaitEvent(POLLIN, on: client) }
        guard server.begun.withLock({ $0 }) - begunBefore == count else {
            throw ProbeFailure(description: "not all were accepted")
        }
        let peak = try residentBytes()
        for client in clients { client.close() }
        let start = Deadline.now
        while server.openCount > 0 {
            guard Deadline.now.seconds(since: start) < .patient else {
                throw ProbeFailure(description: "connections did not end")
            }
            pause()
        }
        return peak
    }

    private static func awaitEvent(_ event: CInt, on descriptor: SocketDescriptor) throws {
        var question = pollfd(fd: descriptor.rawValue, events: Int16(event), revents: 0)
        guard poll(&question, 1, Patience.milliseconds) == 1 else {
            throw ProbeFailure(description: "nothing arrived within \(Patience.seconds) s")
        }
    }

    /// There is no event for memory, so check again soon.
    private static func pause() {
        _ = DispatchSemaphore(value: 0).wait(timeout: .now() + .milliseconds(5))
    }

    /// Returns a ClientHello as sent by a client.
    private static func clientHello(_ authority: CertificateAuthority) throws -> [UInt8] {
        var settings = TLSSettings.client(serverName: "localhost")
        settings.trustRoots = try authority.roots
        let engine = try TLSEngine(context: TLSContext.context(for: settings), settings: settings)
        _ = engine.handshake()
        return Array(engine.output.readableBytes)
    }

    /// Two descriptors per connection, and some for everything else. The default is 2,000 connections, or the
    /// second argument.
    private static func usableConnectionCount() throws -> Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw ProbeFailure(description: "getrlimit")
        }
        limit.rlim_cur = limit.rlim_max
        guard setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            throw ProbeFailure(description: "setrlimit")
        }
        let wanted = CommandLine.arguments.dropFirst(2).first.flatMap { Int($0) } ?? 2000
        let usable = min(wanted, Int(limit.rlim_max / 2) - 100)
        guard usable >= 600 else { throw ProbeFailure(description: "\(limit.rlim_max) descriptors are too few for a burst") }
        return usable
    }

    /// A sanitizer has its own heap, which keeps freed memory to detect use after free. The probe then checks
    /// only that the loop requests a trim.
    private static var isSanitized: Bool {
        ["__tsan_init", "__asan_init"].contains { (symbol: String) in dlsym(nil, symbol) != nil }
    }

    private static func residentBytes() throws -> Int {
        let fields = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ")
        guard fields.count > 1, let pages = Int(fields[1]) else { throw ProbeFailure(description: "statm: \(fields)") }
        return pages * sysconf(CInt(_SC_PAGESIZE))
    }
}
