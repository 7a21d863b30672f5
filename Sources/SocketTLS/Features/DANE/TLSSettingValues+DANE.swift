internal import COpenSSL

extension TLSDANE {
    /// Throws if another setting contradicts the records, or would weaken them.
    func validate(in settings: TLSSettingValues) throws(TLSError) {
        guard let serverName = settings.serverName, case .hostName = try ServerName(serverName) else {
            throw Self.missingName
        }
        for name in additionalNames {
            guard case .hostName = try ServerName(name) else {
                throw TLSSettingValues.invalid("additionalNames contains the address \"\(name.printable)\": pass host names")
            }
        }
        try validateRecords(serverName)
        if acceptsRawPublicKeys { try validateRawPublicKeys(settings) }
        if settings.trustEvaluation == .manual {
            throw TLSSettingValues.invalid("trustEvaluation is .manual, which would overrule the TLSA records: use .delegate")
        }
        if !settings.verifiesHostName {
            throw TLSSettingValues.invalid("verifiesHostName is false, but TLSA records require it: use additionalNames")
        }
        if policy == .opportunistic, !settings.rules.revocationLists.isEmpty || settings.ocspStapling != .none {
            throw TLSSettingValues.invalid(
                "revocationLists and ocspStapling require an authenticated server, but the policy for TLSA records is .opportunistic"
            )
        }
    }

    static var missingName: TLSError {
        TLSSettingValues.invalid("TLSA records belong to a host name: set serverName to the TLSA base domain")
    }

    /// A raw public key has no chain to which the rules for certificates could apply.
    private func validateRawPublicKeys(_ settings: TLSSettingValues) throws(TLSError) {
        if settings.rules.pins != nil || !settings.rules.revocationLists.isEmpty || settings.ocspStapling != .none {
            throw TLSSettingValues.invalid(
                "acceptsRawPublicKeys cannot be combined with pins, revocationLists or ocspStapling: a key has no certificate")
        }
    }

    private func validateRecords(_ serverName: String) throws(TLSError) {
        switch source {
        case .records(let records):
            try Self.validateSizes(records)
            if !records.contains(where: { use(of: $0) == .comparable }) { try requirePolicy(without: records, serverName) }
        case .lookUp(let lookUp): try TLSSettingValues.validate(lookUp.timeout, "the timeout for looking up TLSA records")
        case .removed: break
        }
    }

    /// Limits the work for records from the network.
    private static func validateSizes(_ records: [TLSARecord]) throws(TLSError) {
        guard records.count <= recordLimit else {
            throw TLSSettingValues.invalid("there are \(records.count) TLSA records, but at most \(recordLimit) are accepted")
        }
        let size = records.reduce(0) { $0 + $1.data.count }
        guard size <= sizeLimit else {
            throw TLSSettingValues.invalid("the TLSA records have \(size) bytes, but at most \(sizeLimit) are accepted")
        }
        let count = records.count(where: { $0.matchingType == .full })
        guard count <= fullRecordLimit else {
            throw TLSSettingValues.invalid(
                "\(count) TLSA records contain certificates or keys, but at most \(fullRecordLimit) are accepted")
        }
    }

    /// Throws unless the policy accepts a server without usable records.
    func requirePolicy(without records: [TLSARecord], _ serverName: String) throws(TLSError) {
        let matchesNothing = records.contains { if case .matchesNothing = use(of: $0) { true } else { false } }
        if matchesNothing {
            throw TLSError(
                .tlsaMismatch, "no server can match the TLSA records for \"\(serverName.printable)\": \(remarks(records))",
                operation: "TLSDANE", verifyCode: X509_V_ERR_DANE_NO_MATCH)
        }
        guard policy == .required else { return }
        let reason =
            records.isEmpty
            ? "there are no TLSA records for \"\(serverName.printable)\""
            : "no TLSA record for \"\(serverName.printable)\" is usable: \(remarks(records))"
        throw TLSError(.noUsableTLSARecord, "\(reason); the policy is .required", operation: "TLSDANE")
    }

    private func remarks(_ records: [TLSARecord]) -> String {
        records.prefix(4).map { record in
            switch use(of: record) {
            case .comparable: "\(record.shortText) (OpenSSL cannot use it)"
            case .matchesNothing(let reason), .unusable(let reason): "\(record.shortText) (\(reason))"
            }
        }.joined(separator: ", ")
    }

    /// Unusable records promise TLS too, without authentication (RFC 7672, section 2.2).
    var promiseOfTLS: PromiseOfTLS {
        switch source {
        case .records(let records): records.isEmpty ? .absent(isRequired: policy != .opportunistic) : .made
        case .lookUp, .removed: .absent(isRequired: true)
        }
    }

    /// Returns how to treat a record with these settings.
    func use(of record: TLSARecord) -> TLSARecord.Use {
        let isPKIX = record.usage == .pkixTA || record.usage == .pkixEE
        return isPKIX && !usesPKIXRecords ? .unusable("PKIX usages are not accepted") : record.use
    }
}
