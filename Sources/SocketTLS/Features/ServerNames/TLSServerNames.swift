// Rules of the choice by name:
//  1. The ClientHello is read before OpenSSL sees it. The connection is then made from the context of the
//     chosen settings, and from nothing else: verify mode, options, application protocols and ticket keys all
//     follow the choice (switching the context of an `SSL` would leave most of them behind).
//  2. A session belongs to one context, so none crosses names (CVE-2025-23419).
//  3. A second ClientHello (RFC 8446, 4.1.4) has to ask for the same as the first: OpenSSL does not compare
//     them (`EngineCallbacks`).
//  4. Whatever cannot be read as a ClientHello goes to OpenSSL for its alert. If OpenSSL can read it all the
//     same, the handshake ends: its settings were not chosen (`EngineCallbacks`).

/// The settings of a server for each name that clients ask for (SNI; RFC 6066, section 3).
///
/// ```swift
/// var settings = TLSSettings.server(identity: fallback)
/// settings.serverNames = try TLSServerNames([
///     "mail.example.org": .server(identity: mail),
///     "*.example.org": .server(identity: wildcard),
/// ])
/// ```
///
/// All settings of a name count, except `handshakeTimeout`, `trustTimeout` and `bytesBufferedAtUpgrade`,
/// which come from the settings that hold the names. If the trust callback decides for those, it is asked
/// about the clients of every name too, after OpenSSL: a name with `trustEvaluation` set to `.builtIn` does
/// not skip it. Names are equal only if they are the same object.
public final class TLSServerNames: Sendable, Hashable {
    /// The treatment of a client whose name is not in the list.
    public enum Otherwise: Sendable, Hashable {
        /// It gets the settings that hold the names, as does a client that asks for none.
        case useDefault
        /// The handshake ends with the alert `unrecognized_name`. A client that asks for no name gets the
        /// settings that hold the names all the same.
        case refuse
    }

    /// Settings for one connection.
    enum Answer: Sendable {
        /// Those that hold the names.
        case useDefault
        /// Those of a name, by their number.
        case listed(Int)
        /// The settings that the function has returned.
        case chosen(TLSSettingValues)
        /// This server does not have that name.
        case refused
    }

    private enum Kind {
        /// The numbers are indices into `all`.
        case list(exact: [String: Int], wildcards: [String: Int], Otherwise)
        case function(@Sendable (TLSClientHello) async throws -> TLSServerSettings?)
    }

    private let kind: Kind
    /// The settings of the names.
    let all: [TLSSettingValues]
    /// Those that ask for client certificates.
    let verifying: [TLSSettingValues]

    /// Whether a name has tickets.
    var issueTickets: Bool { all.contains { $0.tickets != .none } }

    /// A list of names and their settings.
    ///
    /// A name is exact, or begins with "*." and means any one label: "*.example.org" for "mail.example.org",
    /// but neither for "example.org" nor for "a.mail.example.org" (RFC 6125, section 6.4.3). An exact name
    /// counts first. Case does not matter, nor does a dot at the end. Names outside ASCII are given as
    /// A-labels.
    ///
    /// - Throws: `invalidSettings` for a name that cannot be asked for, one that is there twice, and settings
    ///   that hold names themselves; and what the settings themselves throw.
    public init(_ settings: [String: TLSServerSettings], otherwise: Otherwise = .useDefault) throws(TLSError) {
        var (exact, wildcards): ([String: Int], [String: Int]) = ([:], [:])
        var all: [TLSSettingValues] = []
        for (written, settings) in settings {
            let isWildcard = written.hasPrefix("*.")
            guard case .hostName(let host) = try ServerName(isWildcard ? String(written.dropFirst(2)) : written) else {
                throw Self.invalid("\"\(written.printable)\" is an address, and clients ask for names")
            }
            let name = host.lowercased()
            let previous = isWildcard ? wildcards[name] : exact[name]
            guard previous == nil else { throw Self.invalid("\"\(written.printable)\" is listed twice") }
            if isWildcard { wildcards[name] = all.count } else { exact[name] = all.count }
            all.append(try Self.usable(settings.values))
        }
        kind = .list(exact: exact, wildcards: wildcards, otherwise)
        self.all = all
        verifying = all.filter(\.verifiesPeer)
    }

    /// Settings by a function, which may wait: for a database, or for a certificate that has to be made.
    ///
    /// - Parameter choose: Returns the settings for a client; nil refuses it with the alert
    ///   `unrecognized_name`, and so does an error with `internal_error`. It is called off the event loops,
    ///   for each connection, and its time counts for `TLSSettings.handshakeTimeout`: return the same
    ///   identities each time, since a new one needs a new context.
    public init(_ choose: @escaping @Sendable (TLSClientHello) async throws -> TLSServerSettings?) {
        kind = .function(choose)
        (all, verifying) = ([], [])
    }

    /// The answer of the list; nil when the function has to be asked.
    func answer(to hello: TLSClientHello) -> Answer? {
        guard case .list(let exact, let wildcards, let otherwise) = kind else { return nil }
        guard let name = hello.comparedName else { return .useDefault }
        let parent = name.firstIndex(of: ".").map { String(name[name.index(after: $0)...]) }
        if let number = exact[name] ?? parent.flatMap({ wildcards[$0] }) { return .listed(number) }
        return otherwise == .refuse ? .refused : .useDefault
    }

    /// Asks the function.
    func ask(_ hello: TLSClientHello) async throws -> Answer {
        guard case .function(let choose) = kind else { return answer(to: hello) ?? .refused }
        guard let settings = try await choose(hello) else { return .refused }
        return .chosen(try Self.usable(settings.values))
    }

    private static func usable(_ settings: TLSSettingValues) throws(TLSError) -> TLSSettingValues {
        guard settings.serverNames == nil else {
            throw invalid("the settings of a name must be without serverNames of their own")
        }
        try settings.validate()
        var settings = settings
        settings.acknowledgesServerName = true
        return settings
    }

    private static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "The server names cannot be used: \(complaint).", operation: "TLSServerNames")
    }

    /// True for the same object.
    public static func == (left: TLSServerNames, right: TLSServerNames) -> Bool { left === right }

    /// Hashes the identity of the object.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
