extension Facts {
    /// Calls `body` with the comparison of ClientHellos disabled, because OpenSSL may report a fragment.
    func withoutComparingHellos<Result>(_ body: () -> Result) -> Result {
        let compares = choosesByHello
        choosesByHello = false
        defer { choosesByHello = compares }
        return body()
    }

    /// Returns the reason to reject a second ClientHello (RFC 8446, 4.1.2) if its server name or protocols
    /// differ from those in the first ClientHello, for which the settings were selected. OpenSSL does not
    /// compare the two messages and uses the second.
    func complaintAboutChange(in hello: UnsafeRawBufferPointer) -> String? {
        guard choosesByHello, !isEstablished else { return nil }
        guard let chosenHello else { return "no settings could be selected for its server name" }
        if TLSClientHello(hello, hasCookie: bio.records != nil)?.asksForTheSame(as: chosenHello) == true { return nil }
        return "its server name or protocols differ from those in the ClientHello for which the settings were selected"
    }
}
