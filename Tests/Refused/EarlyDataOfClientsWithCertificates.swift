// error: extraneous argument label 'upTo:' in call

import AsyncSockets

func settings(_ identity: TLSIdentity) -> TLSServerSettings {
    var settings = TLSSettings.server(identity: identity)
    settings.clients = .certificates(.required, upTo: 16_384)
    return settings
}
