internal import AsyncSockets
internal import Foundation
internal import Synchronization

/// The base class of all services, which retains the open sockets and starts TLS on them.
class Service: AsyncSocketDelegate, @unchecked Sendable {
    // Unchecked because the compiler cannot check a class with subclasses. All properties are constants or
    // protected by a mutex.
    private let settings: TLSServerSettings?
    private let sockets = Mutex<[ObjectIdentifier: AsyncSocket]>([:])

    init(securesWith settings: TLSServerSettings?) {
        self.settings = settings
    }

    /// The first reads of a connection.
    func begin(_ socket: AsyncSocket) {}

    /// Sends bytes to all connections.
    func broadcast(_ bytes: Data) {
        let all = sockets.withLock { Array($0.values) }
        for socket in all { socket.write(bytes, withTimeout: -1, tag: 0) }
    }

    func socket(_ listener: AsyncSocket, didAcceptNewSocket socket: AsyncSocket) {
        sockets.withLock { $0[ObjectIdentifier(socket)] = socket }
        do {
            if let settings { try socket.beginTLS(settings: settings) }
        } catch {
            print("startTLS: \(error)")
            return socket.disconnect()
        }
        begin(socket)
    }

    func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {}

    func socket(_ socket: AsyncSocket, didReadBytes bytes: RawSpan, withTag tag: Int) {}

    func socket(_ socket: AsyncSocket, didWriteDataWithTag tag: Int) {}

    func socketDidDisconnect(_ socket: AsyncSocket, withError error: AsyncSocketError?) {
        sockets.withLock { $0[ObjectIdentifier(socket)] = nil }
    }
}

/// Echoes everything.
final class EchoService: Service, @unchecked Sendable {
    override func begin(_ socket: AsyncSocket) {
        socket.readData(withTimeout: -1, tag: 0)
    }

    override func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        socket.write(data, withTimeout: -1, tag: 0)
        socket.readData(withTimeout: -1, tag: 0)
    }
}

/// Echoes everything from borrowed bytes.
final class BorrowedEchoService: Service, @unchecked Sendable {
    override func begin(_ socket: AsyncSocket) {
        socket.readBytes(tag: 0)
    }

    override func socket(_ socket: AsyncSocket, didReadBytes bytes: RawSpan, withTag tag: Int) {
        socket.write(bytes, withTimeout: -1, tag: 0)
        socket.readBytes(tag: 0)
    }
}

private let newline = Data([10])

/// Echoes each line.
final class LineService: Service, @unchecked Sendable {
    override func begin(_ socket: AsyncSocket) {
        socket.readData(to: newline, withTimeout: -1, tag: 0)
    }

    override func socket(_ socket: AsyncSocket, didRead line: Data, withTag tag: Int) {
        socket.write(line, withTimeout: -1, tag: 0)
        socket.readData(to: newline, withTimeout: -1, tag: 0)
    }
}

/// Replies to each line with its length. This benchmark's lines are longer than the library accepts by
/// default.
final class CountService: Service, @unchecked Sendable {
    override func begin(_ socket: AsyncSocket) {
        readLine(from: socket)
    }

    private func readLine(from socket: AsyncSocket) {
        socket.readData(to: newline, withTimeout: -1, maxLength: .max, tag: 0)
    }

    override func socket(_ socket: AsyncSocket, didRead line: Data, withTag tag: Int) {
        socket.write(Data(number: UInt64(line.count)), withTimeout: -1, tag: 0)
        readLine(from: socket)
    }
}

/// Replies to one line in plaintext, upgrades the connection to TLS, and echoes.
final class UpgradeService: Service, @unchecked Sendable {
    private enum Tag: Int {
        case command, echo
    }

    private let upgrade: TLSServerSettings

    init(upgradesWith settings: TLSServerSettings) {
        upgrade = settings
        super.init(securesWith: nil)
    }

    override func begin(_ socket: AsyncSocket) {
        socket.readData(to: newline, withTimeout: -1, tag: Tag.command.rawValue)
    }

    override func socket(_ socket: AsyncSocket, didRead data: Data, withTag tag: Int) {
        if tag == Tag.echo.rawValue {
            socket.write(data, withTimeout: -1, tag: tag)
        } else {
            socket.write(Data("220 go ahead\r\n".utf8), withTimeout: -1, tag: tag)
            do {
                try socket.beginTLS(settings: upgrade)
            } catch {
                print("startTLS: \(error)")
                return socket.disconnect()
            }
        }
        socket.readData(withTimeout: -1, tag: Tag.echo.rawValue)
    }
}

extension Data {
    /// The number in eight bytes, little-endian.
    init(number: UInt64) {
        self = Swift.withUnsafeBytes(of: number.littleEndian) { Data($0) }
    }

    /// Reads an eight-byte number at an offset.
    func number(at offset: Int) -> Int {
        withUnsafeBytes {
            Int(truncatingIfNeeded: UInt64(littleEndian: $0.loadUnaligned(fromByteOffset: offset, as: UInt64.self)))
        }
    }
}
