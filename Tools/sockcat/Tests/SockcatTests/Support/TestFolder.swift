import AsyncSockets
import AsyncSocketsTesting
import Foundation

/// A temporary folder, which is deleted when its last reference is released.
final class TestFolder: Sendable {
    let path: String

    init() throws {
        path = NSTemporaryDirectory() + "sockcat-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func path(_ name: String) -> String { "\(path)/\(name)" }

    /// Writes a file and returns its path.
    @discardableResult
    func write(_ text: String, to name: String) throws -> String {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path(name)))
        return path(name)
    }

    /// Writes random bytes and returns the path of the file.
    func writeRandomBytes(_ count: Int, to name: String) throws -> String {
        var generator = SystemRandomNumberGenerator()
        var bytes = Data(capacity: count)
        while bytes.count < count { withUnsafeBytes(of: generator.next()) { bytes.append(contentsOf: $0) } }
        try bytes.prefix(count).write(to: URL(fileURLWithPath: path(name)))
        return path(name)
    }

    func text(_ name: String) throws -> String {
        String(decoding: try Data(contentsOf: URL(fileURLWithPath: path(name))), as: UTF8.self)
    }

    /// Issues a certificate, and writes "NAME.pem" and "NAME.key", and "ca.pem" for its authority.
    @discardableResult
    func issue(_ purpose: CertificateAuthority.Purpose, by authority: CertificateAuthority, to name: String) throws
        -> IssuedCertificate
    {
        let issued = try authority.issue(purpose)
        try write(authority.rootPEM, to: "ca.pem")
        try write(issued.certificateChainPEM, to: "\(name).pem")
        try write(issued.privateKeyPEM, to: "\(name).key")
        return issued
    }
}
