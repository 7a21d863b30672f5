import AsyncSocketsTesting
import Foundation

/// Postfix with only its SMTP server on one port. Accepts mail for every address and discards it.
struct Postfix {
    let port: UInt16
    let program: Program
    private let folder: TemporaryFolder

    func stop() {
        program.stop()
    }

    init(_ certificate: IssuedCertificate, clientsOf authority: CertificateAuthority? = nil) throws {
        folder = try TemporaryFolder()
        port = try Loopback.freePort()
        let files = try certificate.write(to: folder.path)
        var settings: [String] = []
        if let authority {
            let root = try authority.writeRoot(to: folder.path)
            settings = ["smtpd_tls_security_level=encrypt", "smtpd_tls_req_ccert=yes", "smtpd_tls_CAfile=\(root)"]
        }
        // Postfix's master needs its own session, which a process group leader cannot create, so a shell is
        // the leader.
        program = try Program(
            ["sh", "-c", #""$0" "$@" & trap "kill $!" TERM; wait"#, Program.server("postfix")]
                + [folder.path, "\(port)", files.certificate, files.key] + settings)
    }
}

/// Dovecot's IMAP server. The password of every user is `secret`.
struct Dovecot {
    let port: UInt16
    let program: Program
    private let folder: TemporaryFolder

    func stop() {
        program.stop()
    }

    init(_ certificate: IssuedCertificate, clientsOf authority: CertificateAuthority? = nil) throws {
        folder = try TemporaryFolder()
        port = try Loopback.freePort()
        let files = try certificate.write(to: folder.path)
        let root = try authority?.writeRoot(to: folder.path)
        program = try Program(
            [Program.server("dovecot"), folder.path, files.certificate, files.key, root ?? "-", "imap=\(port)"])
    }
}

extension Program {
    /// The path of a script that configures and runs a server.
    fileprivate static func server(_ name: String) -> String {
        let folder = URL(filePath: #filePath).deletingLastPathComponent()
        return folder.appending(path: "../../Servers/\(name)").standardizedFileURL.path
    }
}
