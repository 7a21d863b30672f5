// `import AsyncSockets` also exports the public types of the underlying modules, but not their internals.

@_exported public import SocketCore
@_exported public import SocketTLS
@_exported public import StartTLSProtocols
