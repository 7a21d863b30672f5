@testable import SocketTLS

/// Where a setting applies.
enum SettingPlace: Sendable {
    /// In the security domain: connections that differ in it share neither a context nor a session.
    case domain
    /// For a single connection, and in the scope of a client's sessions (`ExpectedPeer`).
    case peer
    /// In the context (`ContextKey`), in addition to the domain.
    case context
    /// For a single connection.
    case connection
}

extension TLSSettingValues {
    /// The places of all settings, in order. The value is created again with every setting named, so a new
    /// setting does not compile until it has a place. A setting with a default value, such as an optional,
    /// does compile, but `SettingScopeTests` detects it.
    var places: [SettingPlace] {
        var places: [SettingPlace] = []
        func put<Value>(_ place: SettingPlace, _ value: Value) -> Value {
            places.append(place)
            return value
        }
        _ = TLSSettingValues(
            role: put(.domain, role),
            serverName: put(.peer, serverName),
            identity: put(.domain, identity),
            additionalIdentities: put(.domain, additionalIdentities),
            trustRoots: put(.domain, trustRoots),
            rules: put(.domain, rules),
            ocspStapling: put(.domain, ocspStapling),
            verifiesHostName: put(.peer, verifiesHostName),
            policy: put(.domain, policy),
            minimumVersion: put(.domain, minimumVersion),
            isMinimumForStreams: put(.connection, isMinimumForStreams),
            maximumVersion: put(.domain, maximumVersion),
            applicationProtocols: put(.domain, applicationProtocols),
            proof: put(.domain, proof),
            certificateType: put(.domain, certificateType),
            clientCertificates: put(.domain, clientCertificates),
            tickets: put(.context, tickets),
            acceptedEarlyData: put(.context, acceptedEarlyData),
            allowsPostHandshakeAuthentication: put(.connection, allowsPostHandshakeAuthentication),
            earlyData: put(.connection, earlyData),
            serverNames: put(.context, serverNames),
            acknowledgesServerName: put(.context, acknowledgesServerName),
            resumption: put(.connection, resumption),
            maximumCertificateChainBytes: put(.domain, maximumCertificateChainBytes),
            maximumCertificateChainLength: put(.domain, maximumCertificateChainLength),
            trustEvaluation: put(.peer, trustEvaluation),
            handshakeTimeout: put(.connection, handshakeTimeout),
            trustTimeout: put(.connection, trustTimeout),
            keyLogFile: put(.domain, keyLogFile),
            earlyPlaintext: put(.connection, earlyPlaintext))
        return places
    }
}
