// Rules of a packet socket:
//  1. A packet arrives whole, with its descriptors, or not at all. A packet that does not fit, or whose
//     descriptors do not fit, is an error, and its descriptors are closed.
//  2. Received descriptors are close-on-exec from the beginning.
//  3. Sending does not wait: the few packets of a handover fit into the kernel's buffer.
//  4. A socket is used by one task at a time. The loop keeps the socket alive until `close()`.

internal import CLinux
internal import Glibc
internal import SocketBuffers

/// A Unix-domain socket that preserves message boundaries and carries descriptors (SOCK_SEQPACKET and
/// SCM_RIGHTS, unix(7)).
package final class PacketSocket: EventHandler, Sendable {
    package struct Packet: Sendable {
        package fileprivate(set) var bytes: [UInt8]
        /// Close-on-exec. The receiver of the packet must close them.
        package let descriptors: [CInt]

        package func closeDescriptors() {
            for number in descriptors { _ = Glibc.close(number) }
        }

        /// Overwrites the bytes.
        package mutating func wipe() {
            for index in bytes.indices { bytes[index] = 0 }
        }
    }

    private struct State {
        var isReady = false
        var hasTimedOut = false
        var waiter: UnsafeContinuation<Void, Never>?
        var registration: LoopRegistration?
        /// The file that is removed when this socket closes.
        var file: UnixSocketFile?
    }

    /// The maximum size of a packet.
    package static let maximumSize = 65_536
    /// The maximum number of descriptors that a packet can carry (`SCM_MAX_FD`).
    package static let maximumDescriptorCount = 253
    private static let backlog: CInt = 16

    private let descriptor: SocketDescriptor
    private let inheritedFile: UnixSocketFile?
    private let loop: SocketEventLoop
    private let state = Locked(State())

    private init(
        _ descriptor: SocketDescriptor, _ file: UnixSocketFile? = nil, inheritedFile: UnixSocketFile? = nil,
        on loop: SocketEventLoop
    ) throws(SystemError) {
        (self.descriptor, self.inheritedFile, self.loop) = (descriptor, inheritedFile, loop)
        let registration = loop.register(self)
        state.withLock { ($0.registration, $0.file) = (registration, file) }
        do throws(SystemError) {
            try loop.watch(descriptor, for: registration)
        } catch {
            loop.deregister(registration)
            file?.remove()
            throw error
        }
    }

    private static func open() throws(SystemError) -> SocketDescriptor {
        let type = CInt(SOCK_SEQPACKET.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        let number = socket(AF_UNIX, type, 0)
        guard number >= 0 else { throw SystemError("socket") }
        return SocketDescriptor(adopting: number)
    }

    /// Listens at a path. Only this user and root can connect.
    package static func listen(at address: SocketEndpoint, on loop: SocketEventLoop) throws(SystemError) -> PacketSocket {
        let descriptor = try open()
        // The file that `bind` creates has the same mode.
        guard fchmod(descriptor.rawValue, 0o600) == 0 else { throw SystemError("fchmod") }
        let file = try UnixSocketFile.make(for: address) { () throws(SystemError) in
            guard address.withSockaddr({ bind(descriptor.rawValue, $0, $1) }) == 0 else { throw SystemError("bind") }
            guard Glibc.listen(descriptor.rawValue, backlog) == 0 else { throw SystemError("listen") }
        }
        return try PacketSocket(descriptor, file, on: loop)
    }

    /// Continues to listen with a socket of another process. Its file is removed after `takeFile()`.
    package convenience init(adoptingListener inherited: InheritedDescriptor, on loop: SocketEventLoop) throws(SystemError) {
        guard let number = inherited.relinquish() else { throw SystemError("accept4", errno: EBADF) }
        let descriptor = SocketDescriptor(adopting: number)
        guard try descriptor.option(SO_TYPE, "SO_TYPE") == CInt(SOCK_SEQPACKET.rawValue),
            try descriptor.option(SO_ACCEPTCONN, "SO_ACCEPTCONN") != 0
        else { throw SystemError("accept4", errno: EINVAL, detail: "not a listening packet socket") }
        try self.init(descriptor, inheritedFile: inherited.file, on: loop)
    }

    /// Connects to a listening packet socket.
    package static func connect(to address: SocketEndpoint, on loop: SocketEventLoop) throws(SystemError) -> PacketSocket {
        let descriptor = try open()
        switch try UnixSocketFile.whileStable(at: address, { descriptor.connect(to: address) }) {
        case .connected: return try PacketSocket(descriptor, on: loop)
        case .inProgress: throw SystemError("connect", errno: EINPROGRESS)
        case .failed(let error): throw error.about(address)
        }
    }

    /// Closes the socket, and removes the file of a listening socket. A waiting task continues.
    package func close() {
        let (waiter, registration, file) = state.withLock { state in
            defer { (state.waiter, state.registration, state.file) = (nil, nil, nil) }
            return (state.waiter, state.registration, state.file)
        }
        guard let registration else { return }
        file?.remove()
        loop.unwatch(descriptor)
        loop.deregister(registration)
        descriptor.close()
        waiter?.resume()
    }

    // MARK: - Handover

    /// Gives up the file, so that it is not removed.
    package func lendFile() -> UnixSocketFile? { state.withLock { $0.file.take() } }

    /// Takes back a file. Removes it if this socket has closed in the meantime.
    package func returnFile(_ file: UnixSocketFile?) {
        guard let file else { return }
        let isOpen = state.withLock { state in
            if state.registration != nil { state.file = file }
            return state.registration != nil
        }
        if !isOpen { file.remove() }
    }

    /// Takes over the file of an inherited socket.
    package func takeFile() { returnFile(inheritedFile) }

    /// Returns a duplicate of the descriptor, which the caller must close.
    package func duplicate() throws(SystemError) -> CInt { try descriptor.duplicate() }

    /// The process that connected or began to listen.
    package var peerProcess: Int32 { CLinux_peer(descriptor.rawValue).process }

    /// Throws EPERM unless the peer is this user or root.
    package func checkPeer() throws(SystemError) {
        let user = CLinux_peer(descriptor.rawValue).user
        guard user == geteuid() || user == 0 else {
            throw SystemError("getsockopt(SO_PEERCRED)", errno: EPERM, detail: "the peer belongs to user \(user)")
        }
    }

    /// Whether the peer has closed the socket, and no packet is left.
    package var hasEnded: Bool {
        var byte: UInt8 = 0
        let flags = CInt(MSG_PEEK) | CInt(MSG_DONTWAIT)
        let count = recv(descriptor.rawValue, &byte, 1, flags)
        // A reset is reported once, before the end.
        return count == 0 || count < 0 && errno == ECONNRESET
    }

    // MARK: - Waiting

    package func handle(_ events: LoopEvents) {
        let waiter = state.withLock { state in
            if events.contains(.deadline) { state.hasTimedOut = true }
            if events.contains(.readable) || events.contains(.hangup) { state.isReady = true }
            return state.isReady || state.hasTimedOut ? state.waiter.take() : nil
        }
        waiter?.resume()
    }

    /// Returns when the socket may be readable.
    ///
    /// - Throws: ETIMEDOUT after the deadline, ECANCELED if the task is cancelled or the socket is closed.
    private nonisolated(nonsending) func becomeReady(until deadline: Deadline?) async throws(SystemError) {
        let registration = state.withLock { state in
            state.hasTimedOut = false
            return state.registration
        }
        guard let registration else { throw SystemError("poll", errno: ECANCELED) }
        loop.setDeadline(deadline, of: registration)
        await withTaskCancellationHandler {
            await withUnsafeContinuation { continuation in
                let waits = state.withLock { state in
                    guard !state.isReady, !state.hasTimedOut, state.registration != nil, !Task.isCancelled else { return false }
                    state.waiter = continuation
                    return true
                }
                if !waits { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiter.take() }?.resume()
        }
        let (isReady, hasTimedOut) = state.withLock { state in
            defer { state.isReady = false }
            return (state.isReady, state.hasTimedOut)
        }
        if !isReady { throw SystemError("poll", errno: hasTimedOut ? ETIMEDOUT : ECANCELED) }
    }

    // MARK: - Connections and packets

    /// Accepts a connection.
    ///
    /// - Throws: ECANCELED if the task is cancelled, and the errors of accept4(2).
    package nonisolated(nonsending) func accept() async throws(SystemError) -> PacketSocket {
        while true {
            let number = retryingOnInterrupt {
                accept4(descriptor.rawValue, nil, nil, CInt(SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue))
            }
            if number >= 0 { return try PacketSocket(SocketDescriptor(adopting: number), on: loop) }
            switch errno {
            case EAGAIN: try await becomeReady(until: nil)
            case ECONNABORTED: continue
            default: throw SystemError("accept4")
            }
        }
    }

    /// Sends a packet without descriptors.
    ///
    /// - Throws: The errors of `send(_:descriptors:)`.
    package func send(_ bytes: [UInt8]) throws(SystemError) {
        try bytes.span.bytes.withUnsafeBytes { bytes throws(SystemError) in try send(bytes, descriptors: []) }
    }

    /// Sends a packet.
    ///
    /// - Throws: EMSGSIZE for too many bytes or descriptors, and the errors of sendmsg(2).
    package func send(_ bytes: UnsafeRawBufferPointer, descriptors: [CInt]) throws(SystemError) {
        try Self.send(bytes, descriptors, on: descriptor.rawValue)
    }

    /// Sends one datagram to a Unix-domain address, without blocking.
    ///
    /// - Throws: EAGAIN if the receiver's queue is full, the errors of `send(_:descriptors:)`, and of
    ///   socket(2).
    package static func sendDatagram(
        _ bytes: [UInt8], descriptors: [CInt], to address: SocketEndpoint
    ) throws(SystemError) {
        let number = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        guard number >= 0 else { throw SystemError("socket") }
        defer { Glibc.close(number) }
        guard address.withSockaddr({ Glibc.connect(number, $0, $1) }) == 0 else { throw SystemError("connect").about(address) }
        try bytes.span.bytes.withUnsafeBytes { bytes throws(SystemError) in try send(bytes, descriptors, on: number) }
    }

    private static func send(
        _ bytes: UnsafeRawBufferPointer, _ descriptors: [CInt], on number: CInt
    ) throws(SystemError) {
        guard bytes.count <= maximumSize, descriptors.count <= maximumDescriptorCount else {
            throw SystemError("sendmsg", errno: EMSGSIZE)
        }
        let size = descriptors.count * MemoryLayout<CInt>.size
        let sent = withUnsafeTemporaryAllocation(byteCount: ControlMessageWriter.space(for: size), alignment: 8) { room in
            var message = msghdr()
            var writer = ControlMessageWriter(room)
            if !descriptors.isEmpty {
                descriptors.withUnsafeBytes { writer.append(SOL_SOCKET, CInt(SCM_RIGHTS), size: size)?.copyMemory(from: $0) }
                message.msg_control = room.baseAddress
                message.msg_controllen = writer.count
            }
            var part = iovec(iov_base: UnsafeMutableRawPointer(mutating: bytes.baseAddress), iov_len: bytes.count)
            return withUnsafeMutablePointer(to: &part) { part in
                message.msg_iov = part
                message.msg_iovlen = 1
                return retryingOnInterrupt { sendmsg(number, &message, CInt(MSG_NOSIGNAL)) }
            }
        }
        guard sent == bytes.count else { throw SystemError("sendmsg") }
    }

    /// Receives a packet. Returns `nil` after the peer has closed the socket.
    ///
    /// A peer that closes the socket with packets unread also resets it. The packets sent before
    /// are received nevertheless.
    ///
    /// - Throws: ETIMEDOUT after the deadline, ECANCELED if the task is cancelled or the socket is closed,
    ///   EMFILE if the process has too many descriptors, EMSGSIZE for a packet that does not fit, and the
    ///   errors of recvmsg(2).
    package nonisolated(nonsending) func receive(until deadline: Deadline?) async throws(SystemError) -> Packet? {
        while true {
            if let packet = try receiveNow() { return packet.bytes.isEmpty && packet.descriptors.isEmpty ? nil : packet }
            do throws(SystemError) {
                try await becomeReady(until: deadline)
            } catch {
                // A packet may have arrived before the loop has reported it.
                guard !isClosed, let packet = try receiveNow() else { throw error }
                return packet.bytes.isEmpty && packet.descriptors.isEmpty ? nil : packet
            }
        }
    }

    private var isClosed: Bool { state.withLock { $0.registration == nil } }

    /// Returns `nil` if no packet has arrived, and an empty packet at the end.
    private func receiveNow() throws(SystemError) -> Packet? {
        var descriptors: [CInt] = []
        var bytes: [UInt8] = []
        var failure: SystemError?
        let size = Self.maximumDescriptorCount * MemoryLayout<CInt>.size
        withUnsafeTemporaryAllocation(byteCount: ControlMessageWriter.space(for: size), alignment: 8) { room in
            withUnsafeTemporaryAllocation(byteCount: Self.maximumSize, alignment: 1) { content in
                var message = msghdr()
                message.msg_control = room.baseAddress
                message.msg_controllen = room.count
                var part = iovec(iov_base: content.baseAddress, iov_len: content.count)
                let count = withUnsafeMutablePointer(to: &part) { part in
                    message.msg_iov = part
                    message.msg_iovlen = 1
                    return retryingOnInterrupt { recvmsg(descriptor.rawValue, &message, CInt(MSG_CMSG_CLOEXEC)) }
                }
                guard count >= 0 else {
                    failure = SystemError("recvmsg")
                    return
                }
                var reader = ControlMessageReader(UnsafeRawBufferPointer(rebasing: room[..<message.msg_controllen]))
                while let control = reader.next() {
                    guard control.level == SOL_SOCKET, control.type == CInt(SCM_RIGHTS) else { continue }
                    for offset in stride(from: 0, to: control.data.count, by: MemoryLayout<CInt>.size) {
                        if let number = control.value(at: offset, as: CInt.self) { descriptors.append(number) }
                    }
                }
                bytes = Array(content[..<count])
                // The buffer has room for the descriptors, but the process may not.
                if message.msg_flags & CInt(MSG_CTRUNC) != 0 { failure = SystemError("recvmsg", errno: EMFILE) }
                if message.msg_flags & CInt(MSG_TRUNC) != 0 { failure = SystemError("recvmsg", errno: EMSGSIZE) }
                content.initializeMemory(as: UInt8.self, repeating: 0)
            }
        }
        guard let failure else { return Packet(bytes: bytes, descriptors: descriptors) }
        for number in descriptors { _ = Glibc.close(number) }
        switch failure.errno {
        case EAGAIN: return nil
        // The error is reported once, and then the packets before it or the end.
        case ECONNRESET: return try receiveNow()
        default: throw failure
        }
    }
}
