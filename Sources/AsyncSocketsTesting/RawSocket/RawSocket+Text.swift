extension RawSocket {
    /// Sends everything.
    package func send(_ text: String) throws(LoopbackError) {
        try send(text.utf8)
    }

    /// Waits for bytes and answers all there are; an empty text means that the other side has ended (FIN).
    package func receiveText() throws(LoopbackError) -> String {
        try String(decoding: receive(), as: UTF8.self)
    }

    /// Waits for `count` bytes, in however many pieces they come, and answers what has come with them. At the
    /// end, be it a reset, there are fewer.
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

    /// Waits until the text ends so, or the other side has ended.
    package func receive(through end: String) throws(LoopbackError) -> String {
        var text = ""
        while !text.hasSuffix(end) {
            let more = try receiveText()
            if more.isEmpty { break }
            text += more
        }
        return text
    }

    /// Waits until the other side has ended.
    package func receiveAll() throws(LoopbackError) -> String {
        var bytes: [UInt8] = []
        while case let piece = try receive(), !piece.isEmpty { bytes += piece }
        return String(decoding: bytes, as: UTF8.self)
    }
}
