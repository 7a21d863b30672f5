import CocoaAsyncSocket
import Foundation

// Sends the mail in standard input over SMTP with STARTTLS.
//
//     cocoa-mail HOST PORT SENDER RECIPIENT <letter

setlinebuf(stdout)

let arguments = CommandLine.arguments
guard arguments.count == 5, let port = UInt16(arguments[2]) else {
    print("usage: cocoa-mail HOST PORT SENDER RECIPIENT")
    exit(64)
}

let letter = FileHandle.standardInput.readDataToEndOfFile()
let client = SMTPClient(host: arguments[1], port: port)
client.send(letter, from: arguments[3], to: arguments[4]) { error in
    if let error = error as NSError? {
        print("failed: \(error.localizedDescription) (\(error.domain) \(error.code))")
        exit(1)
    }
    print("sent")
    exit(0)
}

RunLoop.main.run()
