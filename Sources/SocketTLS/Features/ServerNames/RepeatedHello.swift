extension Facts {
    /// The complaint about a second ClientHello whose name or protocols differ from the first one's, by which
    /// the settings were chosen (RFC 8446, 4.1.2). OpenSSL does not compare the two, and uses the second.
    func complaintAboutChange(in hello: UnsafeRawBufferPointer) -> String? {
        guard choosesByHello, !isEstablished else { return nil }
        guard let chosenHello else { return "the settings for its name could not be chosen" }
        if TLSClientHello(hello)?.asksForTheSame(as: chosenHello) == true { return nil }
        return "its server name or its protocols differ from the first one's"
    }
}
