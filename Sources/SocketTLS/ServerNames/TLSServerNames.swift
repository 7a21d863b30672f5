// Rules of the choice by name:
//  1. The ClientHello is read before OpenSSL sees it. The connection is then made from the context of the
//     chosen settings, and from nothing else: verify mode, options, application protocols and ticket keys all
//     follow the choice (switching the context of an `SSL` would leave most of them behind).
//  2. A session belongs to one context, so none crosses names (CVE-2025-23419).
//  3. Whatever cannot be read as a ClientHello goes to OpenSSL with the settings of no name, for its alert.

internal import COpenSSL

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
/// which come from the settings that hold the names. Names are equal only if they are the same object.
public final class TLSServerNames: Sendable, Hashable {
    /// What becomes of a client whose name is not in the list.
    public enum Otherwise: Sendable, Hashable {
        /// It gets the settings that hold the names, as does a client that asks for none.
        case useDefault
        /// The handshake ends with the alert `unrecognized_name`. A client that asks for no name gets the
        /// settings that hold the names all the same.
        case refuse
    }

    /// Settings, and the context made of them.
    struct Choice: Sendable {
        let settings: TLSSettings
        let context: TLSContext

        init(_ settings: TLSSettings) throws(TLSError) {
            guard settings.role == .server, settings.serverNames == nil else {
                throw TLSError(
                    .invalidSettings, "The settings of a name are those of a server, and hold no names themselves.",
                    operation: "TLSServerNames")
            }
            var settings = settings
            settings.acknowledgesServerName = true
            self.settings = settings
            context = try TLSContext.context(for: settings)
        }
    }

    private enum Kind {
        case list(exact: [String: Choice], wildcards: [String: Choice], Otherwise)
        case function(@Sendable (TLSClientHello) async throws -> TLSSettings?)
    }

    private let kind: Kind

    /// A list of names and their settings.
    ///
    /// A name is exact, or begins with "*." and stands for one label: "*.example.org" for "mail.example.org",
    /// but neither for "example.org" nor for "a.mail.example.org" (RFC 6125, section 6.4.3). An exact name
    /// counts first. Case does not matter. Names outside ASCII are given as A-labels.
    ///
    /// Reads the certificates and roots, so it takes some milliseconds.
    ///
    /// - Throws: `invalidSettings` for a name that cannot be asked for, one that is there twice, and settings
    ///   that are not those of a server; and what the settings themselves throw.
    public init(_ settings: [String: TLSSettings], otherwise: Otherwise = .useDefault) throws(TLSError) {
        var (exact, wildcards): ([String: Choice], [String: Choice]) = ([:], [:])
        for (written, settings) in settings {
            let isWildcard = written.hasPrefix("*.")
            guard case .hostName(let host) = try ServerName(isWildcard ? String(written.dropFirst(2)) : written) else {
                throw Self.invalid("\"\(written.printable)\" is an address, for which no client asks by name")
            }
            let name = host.lowercased()
            let previous = isWildcard ? wildcards[name] : exact[name]
            guard previous == nil else { throw Self.invalid("\"\(written.printable)\" is there twice") }
            let choice = try Choice(settings)
            if isWildcard { wildcards[name] = choice } else { exact[name] = choice }
        }
        kind = .list(exact: exact, wildcards: wildcards, otherwise)
    }

    /// Settings by a function, which may wait: for a database, or for a certificate that has to be made.
    ///
    /// - Parameter choose: Returns the settings for a client; nil refuses it with the alert
    ///   `unrecognized_name`, and so does an error with `internal_error`. It is called off the event loops,
    ///   for each connection, and its time counts for `TLSSettings.handshakeTimeout`: return the same
    ///   identities each time, since a new one is read anew.
    public init(_ choose: @escaping @Sendable (TLSClientHello) async throws -> TLSSettings?) {
        kind = .function(choose)
    }

    /// The answer of the list; nil when the function has to be asked.
    func answer(to hello: TLSClientHello) -> TLSServerChoice? {
        guard case .list(let exact, let wildcards, let otherwise) = kind else { return nil }
        guard let name = hello.serverName?.lowercased() else { return .default }
        let parent = name.firstIndex(of: ".").map { String(name[name.index(after: $0)...]) }
        if let choice = exact[name] ?? parent.flatMap({ wildcards[$0] }) { return .chosen(choice) }
        return otherwise == .refuse ? .refused : .default
    }

    /// Asks the function.
    func ask(_ hello: TLSClientHello) async -> TLSServerChoice {
        guard case .function(let choose) = kind else { return answer(to: hello) ?? .refused }
        do {
            guard let settings = try await choose(hello) else { return .refused }
            return .chosen(try Choice(settings))
        } catch {
            return .failed("\(error)")
        }
    }

    private static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "The server names cannot be used: \(complaint).", operation: "TLSServerNames")
    }

    /// True for the same object.
    public static func == (left: TLSServerNames, right: TLSServerNames) -> Bool { left === right }

    /// Hashes the identity of the object.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

/// The settings for one connection.
package enum TLSServerChoice: Sendable {
    /// Those that hold the names.
    case `default`
    case chosen(Choice)
    /// No one has that name here.
    case refused
    /// The function has thrown.
    case failed(String)

    package struct Choice: Sendable {
        let choice: TLSServerNames.Choice
    }

    static func chosen(_ choice: TLSServerNames.Choice) -> TLSServerChoice { .chosen(Choice(choice: choice)) }
}

/// What a client asks for, before its connection has settings.
package struct TLSServerQuestion: Sendable {
    let names: TLSServerNames
    let hello: TLSClientHello

    /// Asks the function of the names.
    package func answer() async -> TLSServerChoice { await names.ask(hello) }
}
