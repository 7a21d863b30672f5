import AsyncSockets
import Foundation
import Testing

/// A folder with a short name, deleted with the last reference.
final class TemporaryFolder {
    let path: String

    init() throws {
        var template = Array("/tmp/sockets.XXXXXX".utf8CString)
        path = try #require(mkdtemp(&template).map { String(cString: $0) })
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    var names: [String] {
        get throws { try FileManager.default.contentsOfDirectory(atPath: path) }
    }

    func path(_ name: String) -> String {
        path + "/" + name
    }

    func url(_ name: String) -> URL {
        URL(fileURLWithPath: path(name))
    }

    /// The address of a Unix-domain socket in the folder.
    func address(_ name: String) throws -> SocketEndpoint {
        try #require(SocketEndpoint(unixPath: path(name)))
    }
}
