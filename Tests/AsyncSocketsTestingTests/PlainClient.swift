import Glibc

/// A blocking TCP client that shares no code with what it tests. Every call gives up after half a minute.
final class PlainClient {
    private let descriptor: Int32

    struct Failure: Error {
        let number: Int32
    }

    init(port: UInt16) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var limit = timeval(tv_sec: 30, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let answer = withUnsafeBytes(of: &address) {
            connect(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
        }
        guard answer == 0 else { throw Failure(number: errno) }
    }

    deinit { close(descriptor) }

    func send(_ text: String) throws {
        let bytes = Array(text.utf8)
        guard Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count else { throw Failure(number: errno) }
    }

    func finish() {
        shutdown(descriptor, Int32(SHUT_WR))
    }

    /// One `recv`; an empty text means FIN.
    func receive() throws -> String {
        var buffer = [UInt8](repeating: 0, count: 65536)
        let count = recv(descriptor, &buffer, buffer.count, 0)
        guard count >= 0 else { throw Failure(number: errno) }
        return String(decoding: buffer.prefix(count), as: UTF8.self)
    }

    func receive(through end: String) throws -> String {
        var text = ""
        while !text.hasSuffix(end) {
            let more = try receive()
            if more.isEmpty { return text }
            text += more
        }
        return text
    }

    func receiveAll() throws -> String {
        var text = ""
        while true {
            let more = try receive()
            if more.isEmpty { return text }
            text += more
        }
    }
}
