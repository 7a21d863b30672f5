internal import AsyncSockets
internal import FoundationEssentials
internal import Glibc
internal import Synchronization

/// The user's choices for a TLS server, as files and flags.
struct TLSServerChoices: Sendable {
    var identity: IdentityFiles?
    var clientAuthorities: String?
    var preSharedKey: PreSharedKeyArgument?
    var applicationProtocols: [String] = []
    var keyLogFile: String?
    var limits = TLSLimits()
    var acceptsEarlyData = false
    /// The keys of session tickets, if another process takes them over.
    var ticketKeys: (any TLSTicketKeySource)?

    private static let maximumEarlyData = 16 << 10

    /// The files that the settings are read from, which may change while the server runs.
    var files: [String] { (identity?.paths ?? []) + (clientAuthorities.map { [$0] } ?? []) }

    /// Whether a server must generate a certificate, because the user named neither a certificate nor a key.
    var needsFreshCertificate: Bool { identity == nil && preSharedKey == nil }

    /// Reads the files and returns the settings.
    ///
    /// - Parameters:
    ///   - fresh: The certificate to present if the user named none.
    ///   - isForDatagrams: Whether the settings are for DTLS.
    func settings(fresh: FreshCertificate? = nil, isForDatagrams: Bool = false) throws -> TLSServerSettings {
        var settings = try base(fresh)
        if preSharedKey != nil, isForDatagrams { settings.minimumVersion = .tls12 }
        if preSharedKey == nil { settings.sessionTickets = .issued(2, keys: ticketKeys) }
        settings.applicationProtocols = applicationProtocols
        settings.keyLogFile = keyLogFile
        limits.apply(to: &settings)
        if acceptsEarlyData { settings.acceptedEarlyData = TLSAcceptedEarlyData(upTo: Self.maximumEarlyData) }
        if let clientAuthorities {
            settings.trustRoots = TLSClientChoices.roots(clientAuthorities)
            settings.clients = .certificates(.required)
        }
        return settings
    }

    private func base(_ fresh: FreshCertificate?) throws -> TLSServerSettings {
        if let preSharedKey { return .server(preSharedKeys: TLSPreSharedKeys(try preSharedKey.key())) }
        if let identity { return .server(identity: try identity.load()) }
        guard let fresh else {
            throw Failure.usage("TLS requires a certificate", advice: "pass it with --cert and --key, or with --p12")
        }
        return .server(identity: fresh.identity)
    }
}

/// The settings for connections that are upgraded with STARTTLS. They are read again when their files
/// change.
///
/// For connections with TLS from the first byte, `SocketListener.reloadTLS` does the same.
final class ReloadingSettings: Sendable {
    private struct State {
        var settings: TLSServerSettings
        var stamps: [FileStamp?]
    }

    private let choices: TLSServerChoices
    private let fresh: FreshCertificate?
    private let report: ReloadReport
    private let state: Mutex<State>

    init(_ choices: TLSServerChoices, fresh: FreshCertificate?, _ reporter: Reporter) throws {
        (self.choices, self.fresh, report) = (choices, fresh, ReloadReport(reporter))
        let stamps = choices.files.map { FileStamp($0) }
        state = Mutex(State(settings: try choices.settings(fresh: fresh), stamps: stamps))
    }

    /// Returns the settings for the next connection. If changed files cannot be used, the previous settings
    /// are returned and the files are tried again for the next connection.
    func current() -> TLSServerSettings {
        state.withLock { state in
            let stamps = choices.files.map { FileStamp($0) }
            guard stamps != state.stamps else { return state.settings }
            do {
                state = State(settings: try choices.settings(fresh: fresh), stamps: stamps)
                report.succeeded()
            } catch {
                report.failed(error)
            }
            return state.settings
        }
    }
}

/// Reveals that a file has changed.
private struct FileStamp: Equatable {
    let node: UInt
    let size: Int
    let seconds: Int
    let nanoseconds: Int

    init?(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        (node, size) = (UInt(status.st_ino), Int(status.st_size))
        (seconds, nanoseconds) = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
    }
}
