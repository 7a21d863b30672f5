import AsyncSockets
internal import Synchronization

/// The TLS settings, from files that all processes share. With the same ticket keys, each process resumes the
/// sessions of the other processes.
final class Credentials: Sendable {
    /// The certificate and its key.
    let files: [String]
    private let ticketKeys: TLSTicketKeyFile
    private let current: Mutex<TLSServerSettings>

    init(folder: String) throws {
        files = ["\(folder)/server.pem", "\(folder)/server.key"]
        // The file is read again when it changes.
        ticketKeys = try TLSTicketKeyFile(path: "\(folder)/tickets")
        current = Mutex(try Self.read(files, ticketKeys))
    }

    /// The settings from the last call of `reload`.
    var settings: TLSServerSettings { current.withLock { $0 } }

    /// Reads the certificate and its key, and returns the new settings.
    func reload() throws -> TLSServerSettings {
        let settings = try Self.read(files, ticketKeys)
        current.withLock { $0 = settings }
        return settings
    }

    private static func read(_ files: [String], _ ticketKeys: TLSTicketKeyFile) throws -> TLSServerSettings {
        let identity = try TLSIdentity(certificateFile: files[0], privateKeyFile: files[1])
        var settings = TLSSettings.server(identity: identity)
        settings.sessionTickets = .issued(1, keys: ticketKeys)
        return settings
    }
}
