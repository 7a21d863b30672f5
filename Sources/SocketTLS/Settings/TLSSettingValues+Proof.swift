extension TLSSettingValues {
    /// The look-up that must be performed before the handshake; `nil` if the settings are complete.
    package var lookUp: SettingsLookUp? {
        if case .dane(let dane) = proof { dane.lookUp(for: self) } else { nil }
    }

    package var promiseOfTLS: PromiseOfTLS {
        if case .dane(let dane) = proof { dane.promiseOfTLS } else { .unknown }
    }

    /// Throws if another setting contradicts the proof.
    func validateProof(over transport: TLSTransport) throws(TLSError) {
        if certificateType == .rawPublicKey { try validateRawPublicKeys() }
        switch proof {
        case .certificates: break
        case .rawPublicKeys: try validateRawPublicKeys()
        case .preSharedKeys(let keys): try keys.validate(in: self, over: transport)
        case .dane(let dane):
            if dane.acceptsRawPublicKeys { try requireNoSessions() }
            try dane.validate(in: self)
        }
    }

    /// Sets what a client's server must prove on one connection, in addition to the name.
    func expectProof(on ssl: OpaquePointer, _ judge: Judge) throws(TLSError) {
        guard case .dane(let dane) = proof else { return }
        guard let serverName = judge.expectedName else { throw TLSDANE.missingName }
        try judge.expect(dane, on: ssl, serverName: serverName)
    }
}
