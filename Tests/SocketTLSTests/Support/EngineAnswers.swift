import AsyncSocketsTesting
import SocketBuffers
import SocketTLS

extension EnginePair {
    func carryAll() {
        while carry() {}
    }
}

extension TLSEngine.HandshakeAnswer {
    var error: TLSError? {
        if case .failed(let error) = self { return error }
        return nil
    }

    var isComplete: Bool {
        if case .complete = self { return true }
        return false
    }

    var isIncomplete: Bool {
        if case .incomplete = self { return true }
        return false
    }
}

extension TLSEngine.ReadAnswer {
    var error: TLSError? {
        switch self {
        case .failed(let error), .truncated(let error): error
        case .bytes, .incomplete, .closed: nil
        }
    }

    var isClosed: Bool {
        if case .closed = self { return true }
        return false
    }

    var isIncomplete: Bool {
        if case .incomplete = self { return true }
        return false
    }
}

extension TLSEngine.WriteAnswer {
    var isIncomplete: Bool {
        if case .incomplete = self { return true }
        return false
    }

    var accepted: Int? {
        if case .accepted(let count) = self { return count }
        return nil
    }

    var error: TLSError? {
        if case .failed(let error) = self { return error }
        return nil
    }
}

extension TLSEngine {
    func write(_ text: String) -> WriteAnswer {
        Array(text.utf8).withUnsafeBytes { write($0) }
    }

    /// Reads all available data as text. Also returns the result that ended reading.
    func readAll() -> (text: String, end: ReadAnswer) {
        let (bytes, end) = readAllBytes()
        return (String(decoding: bytes, as: UTF8.self), end)
    }

    func readAllBytes() -> (bytes: [UInt8], end: ReadAnswer) {
        let buffer = PreBuffer()
        while true {
            let answer = read(into: buffer, limit: 64 * 1024)
            guard case .bytes = answer else { return (Array(buffer.readableBytes), answer) }
        }
    }

    func receive(_ text: String) {
        Array(text.utf8).withUnsafeBytes { received.append($0) }
    }

    func receive(_ bytes: [UInt8]) {
        bytes.withUnsafeBytes { received.append($0) }
    }
}
