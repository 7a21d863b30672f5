internal import Glibc

/// A blocking TCP socket on the loopback interface, for the recorder.
final class RawSocket {
    private let descriptor: CInt

    private init(_ descriptor: CInt) throws {
        guard descriptor >= 0 else { throw RawSocketError("socket") }
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }

    static func listening() throws -> RawSocket {
        let socket = try RawSocket(Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0))
        let result = withLoopback(port: 0) { bind(socket.descriptor, $0, $1) }
        guard result == 0, listen(socket.descriptor, 8) == 0 else { throw RawSocketError("listen") }
        return socket
    }

    static func connected(to port: UInt16) throws -> RawSocket {
        let socket = try RawSocket(Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0))
        guard withLoopback(port: port, { connect(socket.descriptor, $0, $1) }) == 0 else { throw RawSocketError("connect") }
        socket.disableDelay()
        return socket
    }

    /// Tries to connect ten times a second until a program is listening.
    static func waitUntilListening(on port: UInt16, seconds: Int) throws {
        for _ in 0..<(seconds * 10) {
            if (try? connected(to: port)) != nil { return }
            poll(nil, 0, 100)
        }
        throw RawSocketError("connect")
    }

    func accept(within seconds: CInt) throws -> RawSocket {
        guard Self.waitReadable([self], seconds: seconds)[0] else { throw RawSocketError("accept") }
        let socket = try RawSocket(Glibc.accept(descriptor, nil, nil))
        socket.disableDelay()
        return socket
    }

    func localPort() throws -> UInt16 {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &length) }
        }
        guard result == 0 else { throw RawSocketError("getsockname") }
        return UInt16(bigEndian: address.sin_port)
    }

    /// Returns the next bytes. Empty at the end of the stream or after a reset.
    func receive() -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = recv(descriptor, &bytes, bytes.count, 0)
        return count > 0 ? Array(bytes.prefix(count)) : []
    }

    /// Returns false if the other side has closed the connection.
    func send(_ bytes: [UInt8]) -> Bool {
        var offset = 0
        while offset < bytes.count {
            let count = bytes[offset...].withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
            guard count > 0 else { return false }
            offset += count
        }
        return true
    }

    /// Closes the write side, which sends a FIN.
    func finish() { shutdown(descriptor, CInt(SHUT_WR)) }

    /// Returns which sockets are readable or closed. The value for nil is false.
    static func waitReadable(_ sockets: [RawSocket?], seconds: CInt) -> [Bool] {
        var polled = sockets.map { pollfd(fd: $0?.descriptor ?? -1, events: Int16(POLLIN), revents: 0) }
        guard poll(&polled, nfds_t(polled.count), seconds * 1000) > 0 else { return sockets.map { _ in false } }
        return polled.map { $0.revents != 0 }
    }

    private func disableDelay() {
        var on: CInt = 1
        setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<CInt>.size))
    }

    private static func withLoopback(port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
        }
    }
}

/// A system call in the recorder failed.
struct RawSocketError: Error, CustomStringConvertible {
    let description: String

    init(_ call: String) {
        description = "\(call): \(String(cString: strerror(errno)))"
    }
}
