import Foundation
import Testing

/// A folder with a short name, which goes with the last reference.
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
    func address(_ name: String) throws -> sockaddr_un {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(url(name).path.utf8)
        try #require(bytes.count < MemoryLayout.size(ofValue: address.sun_path))
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        return address
    }

    /// A socket file and its descriptor; closing it leaves the file behind, on which no one answers then.
    func bindSocket(_ name: String, type: __socket_type = SOCK_STREAM) throws -> CInt {
        let descriptor = socket(AF_UNIX, CInt(type.rawValue), 0)
        var address = try address(name)
        let result = withUnsafeBytes(of: &address) { bytes in
            bind(descriptor, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
        }
        try #require(result == 0)
        return descriptor
    }
}
