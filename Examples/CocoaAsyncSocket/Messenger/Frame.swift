import CocoaAsyncSocket
import Foundation

/// A JSON header with the length of the body, CRLF, and the body.
struct Frame {
    static let maxBodyLength = 16 * 1024 * 1024

    var header: [String: Any]
    var body: Data

    var type: String { header["type"] as? String ?? "" }
    var id: Int { header["id"] as? Int ?? 0 }

    init(type: String, id: Int = 0, from sender: String, to recipient: String = "", body: Data = Data()) {
        header = ["type": type, "id": id, "from": sender, "to": recipient, "size": body.count]
        self.body = body
    }

    init(header: [String: Any], body: Data) {
        self.header = header
        self.body = body
    }

    /// Parses a line as a header. Returns the header and the length of its body, or nil if it is invalid.
    static func header(in line: Data) -> (fields: [String: Any], size: Int)? {
        guard let fields = (try? JSONSerialization.jsonObject(with: line, options: [])) as? [String: Any],
            let size = fields["size"] as? Int, size >= 0, size <= maxBodyLength
        else { return nil }
        return (fields, size)
    }

    var packet: Data? {
        guard let line = try? JSONSerialization.data(withJSONObject: header, options: []) else { return nil }
        let packet = NSMutableData(data: line)
        packet.append(GCDAsyncSocket.crlfData())
        packet.append(body)
        return packet as Data
    }
}
