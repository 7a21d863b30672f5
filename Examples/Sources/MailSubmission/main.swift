// Submits a mail over SMTP (RFC 5321) with STARTTLS (RFC 3207). Shows a protocol state machine that upgrades
// a live connection to TLS, and never sends any part of the mail in plaintext.
//
//     swift run --package-path Examples mail-submission mail.example.org 587 me@example.org you@example.org \
//         <letter.txt
//
// The letter consists of header lines, an empty line and the text. To trust a CA of your own, set
// SSL_CERT_FILE=ca.pem in the environment. The client does not authenticate, so the server must accept mail
// from its own network.

import Dispatch
import Foundation

let arguments = CommandLine.arguments
guard arguments.count == 5, let port = UInt16(arguments[2]) else {
    complain("usage: mail-submission HOST PORT SENDER RECIPIENT <LETTER")
    exit(EX_USAGE)
}
let submission: Submission
do {
    let letter = FileHandle.standardInput.readDataToEndOfFile()
    submission = Submission(Mail(sender: arguments[3], recipient: arguments[4], letter: letter), host: arguments[1])
    try submission.start(onPort: port)
    dispatchMain()
} catch {
    complain("\(error)")
    exit(EXIT_FAILURE)
}

func complain(_ message: String) {
    FileHandle.standardError.write(Data("mail-submission: \(message)\n".utf8))
}
