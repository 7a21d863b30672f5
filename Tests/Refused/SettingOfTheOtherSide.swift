// error: property 'clients' requires the types 'TLSClient' and 'TLSServer' be equivalent

import AsyncSockets

func settings() -> TLSClientSettings {
    var settings = TLSSettings.client(serverName: "mail.example.org")
    settings.clients = .certificates(.required)
    return settings
}
