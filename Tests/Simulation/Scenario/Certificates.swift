internal import AsyncSockets
internal import AsyncSocketsTesting
internal import SocketTestSupport

/// The settings of both sides. They are made once, before the first run.
enum Certificates {
    static let client = make { try TestCertificates.client() }
    static let server = make { try TestCertificates.server() }

    private static func make<Settings>(_ body: () throws -> Settings) -> Settings {
        do { return try body() } catch { preconditionFailure("no certificates: \(error)") }
    }
}
