// error: cannot convert value of type 'TLSClientSettings'

import AsyncSockets

func listen(_ settings: TLSClientSettings) throws -> SocketListener {
    try SocketListener(port: 8443, tls: settings)
}
