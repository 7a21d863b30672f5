extension RawSocket {
    /// Sends the whole text.
    package func send(_ text: String) throws(LoopbackError) {
        try send(text.utf8)
    }

    /// Waits for bytes and returns all that have come; an empty text means that the other side has ended
    /// (FIN).
    package func receiveText() throws(LoopbackError) -> String {
        try String(decoding: receive(), as: UTF8.self)
    }

    /// Waits for `count` bytes, in any number of pieces, and returns all that have come. If the other side
    /// ends or resets the connection, there are fewer.
    package func receive(atLeast count: Int) throws(LoopbackError) -> String {
        var bytes: [UInt8] = []
        while bytes.count < count {
            do throws(LoopbackError) {
                let piece = try receive()
                if piece.isEmpty { break }
                bytes += piece
            } catch {
                guard error.code == .reset else { throw error }
                break
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Receives text that ends with `end`, or all text until the other side ends.
    package func receive(through end: String) throws(LoopbackError) -> String {
        var text = ""
        while !text.hasSuffix(end) {
            let more = try receiveText()
            if more.isEmpty { break }
            text += more
        }
        return text
    }

    /// Receives all text until the other side ends.
    package func receiveAll() throws(LoopbackError) -> String {
        var bytes: [UInt8] = []
        while case let piece = try receive(), !piece.isEmpty { bytes += piece }
        return String(decoding: bytes, as: UTF8.self)
    }
}
