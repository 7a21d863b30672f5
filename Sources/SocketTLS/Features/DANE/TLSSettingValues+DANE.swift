extension TLSDANE {
    /// Throws if another setting contradicts the records, or would weaken them.
    func validate(in settings: TLSSettingValues) throws(TLSError) {
        guard let serverName = settings.serverName, case .hostName = try ServerName(serverName) else {
            throw TLSSettingValues.invalid("TLSA records belong to a host name: set serverName to the TLSA base domain")
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
            guard records.count <= Self.recordLimit else {
                throw TLSSettingValues.invalid(
                    "there are \(records.count) TLSA records, but at most \(Self.recordLimit) are accepted")
            }
            if policy == .required, !records.contains(where: { defect(of: $0) == nil }) {
                throw noUsableRecord(serverName)
            }
        case .lookUp(let lookUp): try TLSSettingValues.validate(lookUp.timeout, "the timeout for looking up TLSA records")
        case .removed: break
        }
    }

    /// Unusable records promise TLS too, without authentication (RFC 7672, section 2.2).
    var promiseOfTLS: PromiseOfTLS {
        records?.isEmpty == false ? .made : .absent(isRequired: policy != .opportunistic)
    }

    /// Returns the reason that a record is not usable with these settings.
    func defect(of record: TLSARecord) -> String? {
        let isPKIX = record.usage == .pkixTA || record.usage == .pkixEE
        return isPKIX && !usesPKIXRecords ? "PKIX usages are not accepted" : record.defect
    }

    func noUsableRecord(_ serverName: String) -> TLSError {
        let records = records ?? []
        let remarks = records.prefix(4).map { "\($0.shortText) (\(defect(of: $0) ?? "OpenSSL cannot use it"))" }
        let reason =
            records.isEmpty
            ? "there are no TLSA records for \"\(serverName.printable)\""
            : "no TLSA record for \"\(serverName.printable)\" is usable: \(remarks.joined(separator: ", "))"
        return TLSError(.noUsableTLSARecord, "\(reason); the policy is .required", operation: "TLSDANE")
    }
}
