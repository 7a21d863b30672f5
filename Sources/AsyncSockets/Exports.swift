// What users of `import AsyncSockets` see of the modules below it: their public types, and nothing of their
// machinery.

@_exported public import SocketCore
@_exported public import SocketTLS
