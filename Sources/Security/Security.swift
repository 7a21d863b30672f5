// A module for files that contain `import Security`. Its names are in CocoaAsyncSocket.
@_exported public import CocoaAsyncSocket
