// Rules for selecting settings by server name:
//  1. The ClientHello is read before it is passed to OpenSSL. The `SSL` is then created from the context of
//     the chosen settings, so verify mode, options, application protocols and ticket keys all follow the
//     choice. (Switching the context of an existing `SSL` would keep most of the old values.)
//  2. A session belongs to one context, so it is never resumed under another name (CVE-2025-23419).
//  3. A second ClientHello (RFC 8446, 4.1.4) must request the same name and protocols as the first,
//     because OpenSSL does not compare them (`EngineCallbacks`).
//  4. Bytes that cannot be read as a ClientHello are passed to OpenSSL, which sends the alert. If OpenSSL
//     can read them anyway, the handshake fails, because no settings were chosen for them
//     (`EngineCallbacks`).

/// A server's settings for each name that clients request (SNI; RFC 6066, section 3).
///
/// ```swift
/// var settings = TLSSettings.server(identity: fallback)
/// settings.serverNames = try TLSServerNames([
///     "mail.example.org": .server(identity: mail),
///     "*.example.org": .server(identity: wildcard),
/// ])
/// ```
///
/// All settings for a name apply, except `handshakeTimeout`, `trustTimeout` and `earlyPlaintext`, which are
/// taken from the settings that contain the names. If those settings use a trust callback, it is called for
/// clients of every name, after OpenSSL's verification: a name with `trustEvaluation` set to `.builtIn` does
/// not skip it. Two `TLSServerNames` are equal only if they are the same object.
public final class TLSServerNames: Sendable, Hashable {
    /// The treatment of a client that requests a name outside the list.
    public enum UnknownName: Sendable, Hashable {
        /// The client gets the settings that contain the names, as does a client that requests no name.
        case useDefault
        /// The handshake fails with the alert `unrecognized_name`. A client that requests no name still
        /// gets the settings that contain the names.
        case reject
    }

    enum Answer: Sendable {
        /// The settings that contain the names.
        case useDefault
        /// The settings for a listed name, as an index into `all`.
        case listed(Int)
        /// The settings that the function returned.
        case chosen(TLSSettingValues)
        /// The server does not serve the requested name.
        case refused
    }

    private enum Kind {
        /// The values are indices into `all`.
        case list(exact: [String: Int], wildcards: [String: Int], UnknownName)
        case function(@Sendable (TLSClientHello) async throws -> TLSServerSettings?)
    }

    private let kind: Kind
    /// The settings for all listed names.
    let all: [TLSSettingValues]
    /// The settings that request client certificates.
    let verifying: [TLSSettingValues]

    var issueTickets: Bool { all.contains(where: \.issuesTickets) }

    /// Creates a list of names and their settings.
    ///
    /// A name is either exact or starts with "*.", which matches any single label: "*.example.org"
    /// matches "mail.example.org", but neither "example.org" nor "a.mail.example.org" (RFC 6125, section
    /// 6.4.3). An exact name takes precedence. Case and a trailing dot are ignored. Non-ASCII names must
    /// be given as A-labels.
    ///
    /// - Throws: `invalidSettings` for a name that clients cannot request, a duplicate name, or settings
    ///   with a `serverNames` value, and any error from validating the settings.
    public init(_ settings: [String: TLSServerSettings], unknownName: UnknownName = .useDefault) throws(TLSError) {
        var (exact, wildcards): ([String: Int], [String: Int]) = ([:], [:])
        var all: [TLSSettingValues] = []
        for (written, settings) in settings {
            let isWildcard = written.hasPrefix("*.")
            guard case .hostName(let host) = try ServerName(isWildcard ? String(written.dropFirst(2)) : written) else {
                throw Self.invalid("\"\(written.printable)\" is an IP address, but clients send only host names")
            }
            let name = host.lowercased()
            let previous = isWildcard ? wildcards[name] : exact[name]
            guard previous == nil else { throw Self.invalid("\"\(written.printable)\" is listed twice") }
            if isWildcard { wildcards[name] = all.count } else { exact[name] = all.count }
            all.append(try Self.usable(settings.values))
        }
        kind = .list(exact: exact, wildcards: wildcards, unknownName)
        self.all = all
        verifying = all.filter(\.verifiesPeer)
    }

    /// Creates settings that a function selects for each client. The function may suspend, for example to
    /// query a database or to obtain a certificate.
    ///
    /// - Parameter choose: Returns the settings for a client. If it returns `nil`, the client is rejected
    ///   with the alert `unrecognized_name`; if it throws, with `internal_error`. It is called for each
    ///   connection, off the event loops, and its running time is part of `TLSSettings.handshakeTimeout`.
    ///   Return the same identities each time, because a new identity needs a new context.
    public init(_ choose: @escaping @Sendable (TLSClientHello) async throws -> TLSServerSettings?) {
        kind = .function(choose)
        (all, verifying) = ([], [])
    }

    /// Returns the choice from the list, or `nil` if the function must be called.
    func answer(to hello: TLSClientHello) -> Answer? {
        guard case .list(let exact, let wildcards, let unknownName) = kind else { return nil }
        guard let name = hello.comparedName else { return .useDefault }
        let parent = name.firstIndex(of: ".").map { String(name[name.index(after: $0)...]) }
        if let number = exact[name] ?? parent.flatMap({ wildcards[$0] }) { return .listed(number) }
        return unknownName == .reject ? .refused : .useDefault
    }

    func ask(_ hello: TLSClientHello) async throws -> Answer {
        guard case .function(let choose) = kind else { return answer(to: hello) ?? .refused }
        guard let settings = try await choose(hello) else { return .refused }
        return .chosen(try Self.usable(settings.values))
    }

    private static func usable(_ settings: TLSSettingValues) throws(TLSError) -> TLSSettingValues {
        guard settings.serverNames == nil else {
            throw invalid("the settings for a server name must not contain serverNames")
        }
        try settings.validate()
        var settings = settings
        settings.acknowledgesServerName = true
        return settings
    }

    private static func invalid(_ complaint: String) -> TLSError {
        TLSError(.invalidSettings, "the server names cannot be used: \(complaint)", operation: "TLSServerNames")
    }

    /// Returns whether both values are the same object.
    public static func == (left: TLSServerNames, right: TLSServerNames) -> Bool { left === right }

    /// Hashes the identity of the object.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

/// The progress of selecting a server's settings for the client's server name (SNI). `isAsked` is set once
/// the program's function is called.
final class ServerSelection {
    let names: TLSServerNames
    var isAsked = false
    /// The number of bytes required before another attempt to read the ClientHello is worthwhile.
    var minimum = 0
    var reader = ClientHelloReader()
    /// The ClientHello for which the settings are selected.
    var hello: TLSClientHello?

    init(names: TLSServerNames) {
        self.names = names
    }

    /// Returns the reason to reject a second ClientHello (RFC 8446, 4.1.2) if its server name or protocols
    /// differ from the first, for which the settings were selected. OpenSSL does not compare the two messages
    /// and uses the second.
    func complaint(about second: UnsafeRawBufferPointer, hasCookie: Bool) -> String? {
        guard let hello else { return "no settings could be selected for its server name" }
        if TLSClientHello(second, hasCookie: hasCookie)?.asksForTheSame(as: hello) == true { return nil }
        return "its server name or protocols differ from those in the ClientHello for which the settings were selected"
    }
}

extension TLSSettings where Side == TLSRole.Server {
    /// Settings for clients that request specific names (SNI). If `nil`, these settings apply to all clients.
    public var serverNames: TLSServerNames? {
        get { values.serverNames }
        set { values.serverNames = newValue }
    }
}
