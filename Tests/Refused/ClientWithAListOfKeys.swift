// error: cannot convert value of type 'TLSPreSharedKeys'

import AsyncSockets

func settings(_ keys: TLSPreSharedKeys) -> TLSClientSettings {
    var settings = TLSSettings.client(serverName: "mail.example.org")
    settings.proof = .preSharedKey(keys)
    return settings
}
