// Users of `import AsyncSockets` see the public types of the modules below it, and nothing of their
// machinery.

@_exported public import SocketCore
@_exported public import SocketTLS
