// Rules of a look-up:
//  1. It runs before the dialogue and the handshake: a dialogue depends on the records, and a session is
//     offered only with the records of its scope.
//  2. A look-up that fails, takes too long, or returns unacceptable records closes the connection under every
//     policy: a failure may be the work of an attacker (RFC 7672, section 2.1.2).
//  3. An engine rejects settings with a look-up that has not been performed.

extension TLSDANE {
    /// Creates a rule with records that are looked up when the connection starts TLS.
    ///
    /// - Parameters:
    ///   - policy: How the connection continues if no record is usable.
    ///   - additionalNames: See the property.
    ///   - timeout: The time limit for `lookUp`, which is not part of `TLSSettings.handshakeTimeout`.
    ///   - lookUp: Returns all TLSA records for a server name, or an empty list if the name securely has no
    ///     records or is not signed. It is called once per connection, off the event loops, before the
    ///     messages of STARTTLS and before TLS. If it throws, for example because the reply is not authentic
    ///     (bogus), or does not return in time, the connection fails with `tlsaLookUpFailed` under every
    ///     policy. It is cancelled if this side closes the connection first. That the server has closed it is
    ///     noticed after the look-up.
    public init(
        policy: Policy, additionalNames: [String] = [], timeout: Duration = .seconds(10),
        lookUp: @escaping @Sendable (_ serverName: String) async throws -> Response
    ) {
        self.init(source: .lookUp(LookUp(timeout, lookUp)), policy: policy, additionalNames: additionalNames)
    }

    /// The result of a look-up.
    public struct Response: Sendable, Hashable {
        /// All TLSA records of the server's host and port.
        public var records: [TLSARecord]
        /// The name that has the records, if it is not `TLSSettings.serverName` but the name to which secure
        /// aliases (CNAME) of it lead (RFC 7671, section 7). With usable records, it replaces `serverName`:
        /// it is sent to the server (SNI), and the certificate must be for it or one of the additional names.
        public var baseDomain: String?
        /// Added to `TLSDANE.additionalNames`.
        public var additionalNames: [String]

        /// Creates a response. See the properties.
        public init(_ records: [TLSARecord], baseDomain: String? = nil, additionalNames: [String] = []) {
            (self.records, self.baseDomain, self.additionalNames) = (records, baseDomain, additionalNames)
        }
    }

    /// Two look-ups are equal if they are the same.
    final class LookUp: Sendable, Hashable {
        let timeout: Duration
        let find: @Sendable (String) async throws -> Response

        init(_ timeout: Duration, _ find: @escaping @Sendable (String) async throws -> Response) {
            (self.timeout, self.find) = (timeout, find)
        }

        static func == (left: LookUp, right: LookUp) -> Bool { left === right }

        func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
    }

    /// Returns the look-up for the records; `nil` if they are known.
    func lookUp(for settings: TLSSettingValues) -> SettingsLookUp? {
        guard case .lookUp(let lookUp) = source else { return nil }
        return SettingsLookUp(
            timeout: lookUp.timeout,
            timeoutError: Self.failure(of: settings.serverName, "did not complete within \(lookUp.timeout)"),
            find: { await complete(settings, lookUp) })
    }

    private func complete(
        _ settings: TLSSettingValues, _ lookUp: LookUp
    ) async -> Result<TLSSettingValues, TLSError> {
        guard let serverName = settings.serverName else { return .failure(Self.missingName) }
        var (known, complete) = (self, settings)
        do {
            let response = try await lookUp.find(serverName)
            known.source = .records(response.records)
            known.additionalNames += response.additionalNames
            // Without usable records, the policy is about the name that the caller has set.
            let isUsable = response.records.contains { use(of: $0) == .comparable }
            if isUsable, let name = response.baseDomain { complete.serverName = name }
        } catch {
            return .failure(Self.failure(of: serverName, "failed: \("\(error)".printable)"))
        }
        complete.proof = .dane(known)
        do throws(TLSError) {
            try known.validate(in: complete)
            return .success(complete)
        } catch {
            // The other settings were valid before the look-up.
            return .failure(
                error.code == .invalidSettings ? Self.failure(of: serverName, "was not acceptable: \(error.message)") : error)
        }
    }

    private static func failure(of serverName: String?, _ complaint: String) -> TLSError {
        TLSError(
            .tlsaLookUpFailed, "the look-up of TLSA records for \"\((serverName ?? "").printable)\" \(complaint)",
            operation: "TLSDANE")
    }
}

extension TLSError.Code {
    /// The look-up of TLSA records failed or took too long, so it is not known which records exist.
    public static let tlsaLookUpFailed = TLSError.Code("tlsaLookUpFailed", fault: .system)
}
