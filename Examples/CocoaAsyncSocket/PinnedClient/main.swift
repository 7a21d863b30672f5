import CocoaAsyncSocket
import Foundation

// Evaluates the server's certificate itself, with a CA and a server certificate that ship with the program.
//
//     cocoa-pinned-client HOST PORT AUTHORITY.der PINNED.der

setlinebuf(stdout)

let arguments = CommandLine.arguments
guard arguments.count == 5, let port = UInt16(arguments[2]) else {
    print("usage: cocoa-pinned-client HOST PORT AUTHORITY.der PINNED.der")
    exit(64)
}

func certificate(at path: String) -> SecCertificate {
    guard let data = FileManager.default.contents(atPath: path),
        let certificate = SecCertificateCreateWithData(nil, data as CFData)
    else {
        print("failed: \(path) is not a certificate")
        exit(1)
    }
    return certificate
}

let client = PinnedClient(
    host: arguments[1], authority: certificate(at: arguments[3]), pinned: certificate(at: arguments[4]))
client.connect(port: port)

dispatchMain()
