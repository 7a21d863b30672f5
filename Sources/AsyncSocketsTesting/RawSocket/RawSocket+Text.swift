extension RawSocket {
    package func send(_ text: String) throws(LoopbackError) {
        try send(text.utf8)
    }

    /// Receives all available bytes as text. Blocks until at least one byte is available. Empty text means
    /// that the other side sent FIN.
    package func receiveText() throws(LoopbackError) -> String {
        try String(decoding: receive(), as: UTF8.self)
    }

    /// Receives at least `count` bytes, in any number of pieces. Returns fewer bytes if the other side closes
    /// or resets the connection.
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

    /// Receives text until its suffix is `end` or the other side sends FIN.
    package func receive(through end: String) throws(LoopbackError) -> String {
        var text = ""
        while !text.hasSuffix(end) {
            let more = try receiveText()
            if more.isEmpty { break }
            text += more
        }
        return text
    }

    /// Receives all text until the other side sends FIN.
    package func receiveAll() throws(LoopbackError) -> String {
        var bytes: [UInt8] = []
        while case let piece = try receive(), !piece.isEmpty { bytes += piece }
        return String(decoding: bytes, as: UTF8.self)
    }
}
