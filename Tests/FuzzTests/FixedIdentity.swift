import SocketTLS

/// A root, a certificate and its key that never change, so that recorded inputs contain the same names in
/// every run. The certificate is valid until 2126.
enum FixedIdentity {
    static let rootPEM = """
        -----BEGIN CERTIFICATE-----
        MIIBjjCCATWgAwIBAgIUWHsxLPjU2ZgYpluERAIOIVg6PX0wCgYIKoZIzj0EAwIw
        FDESMBAGA1UEAwwJRnV6eiBSb290MCAXDTI2MTEyNzIwNDgwNloYDzIxMjYxMTAz
        MjA0ODA2WjAUMRIwEAYDVQQDDAlGdXp6IFJvb3QwWTATBgcqhkjOPQIBBggqhkjO
        PQMBBwNCAAROjghG4XN7U4FSY7DSn4gov3jLBn+dNxhyEpsbgZEFOGSH5c1yaTeY
        Tf/FH5pvXvT1ZUc2pd+8PyR/0q1dH24zo2MwYTAdBgNVHQ4EFgQUHRe4LzhECt05
        YQp0VeqNPCVfY4gwHwYDVR0jBBgwFoAUHRe4LzhECt05YQp0VeqNPCVfY4gwDgYD
        VR0PAQH/BAQDAgGGMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIg
        VLlpvBaRtwXEsugqltzaNwNYRTdhEWbZVtM0PH2WbwACIHHjODL8T/3TvNzPML14
        jLt9T4zdw746TAeVojT7nhBs
        -----END CERTIFICATE-----
        """
    static let certificatePEM = """
        -----BEGIN CERTIFICATE-----
        MIIBuDCCAV2gAwIBAgICEAEwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJRnV6eiBS
        b290MCAXDTI2MTEyNzIwNDgwNloYDzIxMjYxMTAzMjA0ODA2WjAXMRUwEwYDVQQD
        DAxmdXp6LmV4YW1wbGUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARG2ecpAsxH
        d9qYu4Omk7nS+8gNFQ7IC6Cmm4nDr7txX0Jsc3avh7uDPjHLUmNLXxOxtNj4iikY
        kUOwEwNCJfGEo4GZMIGWMBcGA1UdEQQQMA6CDGZ1enouZXhhbXBsZTAdBgNVHSUE
        FjAUBggrBgEFBQcDAQYIKwYBBQUHAwIwDAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8E
        BAMCB4AwHQYDVR0OBBYEFCgVnsm8z9eGeGPjPJLN8Y5LZC3VMB8GA1UdIwQYMBaA
        FB0XuC84RArdOWEKdFXqjTwlX2OIMAoGCCqGSM49BAMCA0kAMEYCIQCv8dEL67ye
        X/m1m6N9GA47gS2oi0SyYuZXbvn+M/oKJwIhANKfyie4t6FLEg5cfNLnZvU+HVyv
        p84wUNlXV/2ktlFT
        -----END CERTIFICATE-----
        """
    static let keyPEM = """
        -----BEGIN PRIVATE KEY-----
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgwRLgBj4Oe/aA/EoB
        8ZHFJArwyTTk1b6SBiM82P29KgOhRANCAARG2ecpAsxHd9qYu4Omk7nS+8gNFQ7I
        C6Cmm4nDr7txX0Jsc3avh7uDPjHLUmNLXxOxtNj4iikYkUOwEwNCJfGE
        -----END PRIVATE KEY-----
        """
    static let name = "fuzz.example"

    static let root = needed { try TLSCertificate(pem: rootPEM) }
    static let certificate = needed { try TLSCertificate(pem: certificatePEM) }
    static let identity = needed { try TLSIdentity(pem: certificatePEM + "\n" + keyPEM + "\n") }

    static let client = {
        var settings = TLSClientSettings.client(serverName: name)
        settings.trustRoots = .certificates([root])
        return settings
    }()
    static let server = TLSServerSettings.server(identity: identity)
    static let datagramServer = {
        var settings = server
        settings.minimumVersion = .dtls12
        settings.maximumVersion = .dtls12
        return settings
    }()
    static let datagramClient = {
        var settings = client
        settings.minimumVersion = .dtls12
        settings.maximumVersion = .dtls12
        return settings
    }()

    static func needed<Value>(_ make: () throws -> Value) -> Value {
        do { return try make() } catch { fatalError("the fixed identity cannot be used: \(error)") }
    }
}
