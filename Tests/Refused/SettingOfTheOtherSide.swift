// error: property 'clients' requires the types 'TLSRole.Client' and 'TLSRole.Server' be equivalent

import AsyncSockets

func settings() -> TLSClientSettings {
    var settings = TLSSettings.client(serverName: "mail.example.org")
    settings.clients = .certificates(.required)
    return settings
}
