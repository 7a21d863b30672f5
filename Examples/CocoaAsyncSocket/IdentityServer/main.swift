import CocoaAsyncSocket
import Foundation

// A server with TLS from the first byte. Its certificate and key are in a PKCS#12 file.
//
//     cocoa-identity-server PORT FILE.p12 PASSPHRASE
//
// It echoes each line in upper case.

setlinebuf(stdout)

let arguments = CommandLine.arguments
guard arguments.count == 4, let port = UInt16(arguments[1]) else {
    print("usage: cocoa-identity-server PORT FILE.p12 PASSPHRASE")
    exit(64)
}

do {
    let identity = try Identity(file: URL(fileURLWithPath: arguments[2]), passphrase: arguments[3])
    let server = IdentityServer(identity: identity)
    try server.start(port: port)
    withExtendedLifetime(server) { RunLoop.main.run() }
} catch {
    print("failed: \(error.localizedDescription)")
    exit(1)
}
