// error: extra argument in call

import AsyncSockets

func settings(_ keys: TLSRawPublicKeys, _ rules: TLSCertificateRules) -> TLSClientSettings {
    var settings = TLSSettings.client(serverName: "mail.example.org")
    settings.proof = .rawPublicKeys(keys, rules)
    return settings
}
