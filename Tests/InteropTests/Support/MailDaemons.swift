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
        let configuration = try folder.makeFolder("etc")
        let files = try certificate.write(to: configuration)
        let settings = [
            "compatibility_level": "3.6",
            "queue_directory": try folder.makeFolder("spool"),
            "data_directory": try folder.makeFolder("lib", owner: "postfix"),
            "maillog_file": "/dev/stdout",
            "maillog_file_prefixes": "/dev",
            "inet_interfaces": "127.0.0.1",
            "inet_protocols": "ipv4",
            "myhostname": "localhost",
            "mydestination": "localhost",
            "mynetworks": "127.0.0.0/8",
            "alias_maps": "",
            "local_recipient_maps": "",
            "local_transport": "discard",
            "default_transport": "discard",
            "smtpd_peername_lookup": "no",
            "smtpd_relay_restrictions": "permit_mynetworks, reject",
            "smtpd_tls_cert_file": files.certificate,
            "smtpd_tls_key_file": files.key,
            "smtpd_tls_security_level": authority == nil ? "may" : "encrypt",
            "smtpd_tls_req_ccert": authority == nil ? "no" : "yes",
            "smtpd_tls_CAfile": try authority?.writeRoot(to: configuration) ?? "",
            "smtpd_tls_received_header": "yes",
        ]
        _ = try folder.write(settings.map { "\($0) = \($1)\n" }.sorted().joined(), to: "etc/main.cf")
        _ = try folder.write(Self.services(on: port), to: "etc/master.cf")
        // Creates the queue folders. Warns about files that a full installation would have.
        let check = Process()
        check.executableURL = URL(fileURLWithPath: "/usr/sbin/postfix")
        check.arguments = ["-c", configuration, "check"]
        check.standardError = FileHandle.nullDevice
        try check.run()
        check.waitUntilExit()
        // Postfix's master needs its own session, which a process group leader cannot create, so a shell is
        // the leader.
        program = try Program(["sh", "-c", "/usr/lib/postfix/sbin/master -c \(configuration) -s & trap \"kill $!\" TERM; wait"])
    }

    /// The daemons needed for one delivery (master(5)).
    private static func services(on port: UInt16) -> String {
        let lines = [
            "127.0.0.1:\(port) inet n - n - - smtpd",
            "cleanup unix n - n - 0 cleanup",
            "qmgr unix n - n 300 1 qmgr",
            "pickup unix n - n 60 1 pickup",
            "tlsmgr unix - - n 1000? 1 tlsmgr",
            "rewrite unix - - n - - trivial-rewrite",
            "bounce unix - - n - 0 bounce",
            "defer unix - - n - 0 bounce",
            "discard unix - - n - - discard",
            "anvil unix - - n - 1 anvil",
            "proxymap unix - - n - - proxymap",
            "postlog unix-dgram n - n - 1 postlogd",
        ]
        return lines.joined(separator: "\n") + "\n"
    }
}

/// Dovecot's IMAP server. The user is `tester`, the password `secret`.
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
        let run = try folder.makeFolder("run")
        let mail = try folder.makeFolder("mail", owner: "nobody")
        let lines = [
            "protocols = imap",
            "base_dir = \(run)",
            "state_dir = \(run)",
            "log_path = /dev/stderr",
            "listen = 127.0.0.1",
            "ssl = required",
            "first_valid_uid = 0",
            "mail_uid = nobody",
            "mail_gid = nogroup",
            "service imap-login {\n inet_listener imap {\n port = \(port)\n }\n inet_listener imaps {\n port = 0\n }\n}",
            "service stats {\n client_limit = 100\n}",
        ]
        let root = try authority?.writeRoot(to: folder.path)
        let version = try Self.version()
        let configuration = try folder.write(
            (version.hasPrefix("2.3") ? lines + Self.settings(files, root, mail) : Self.newSettings(files, root, mail) + lines)
                .joined(separator: "\n") + "\n", to: "dovecot.conf")
        program = try Program(["dovecot", "-F", "-c", configuration])
    }

    /// The settings whose names changed in Dovecot 2.4, for 2.3.
    private static func settings(_ files: (certificate: String, key: String), _ root: String?, _ mail: String) -> [String] {
        [
            "ssl_cert = <\(files.certificate)",
            "ssl_key = <\(files.key)",
            "disable_plaintext_auth = yes",
            "mail_location = maildir:\(mail)/%u",
            "passdb {\n driver = static\n args = password=secret\n}",
            "userdb {\n driver = static\n args = uid=nobody gid=nogroup home=\(mail)/%u\n}",
        ]
            + (root.map {
                [
                    "ssl_ca = <\($0)", "ssl_verify_client_cert = yes", "ssl_require_crl = no",
                    "auth_ssl_require_client_cert = yes",
                ]
            } ?? [])
    }

    /// The same for Dovecot 2.4, as in Debian 13.
    private static func newSettings(
        _ files: (certificate: String, key: String), _ root: String?, _ mail: String
    ) -> [String] {
        [
            "dovecot_config_version = 2.4.1",
            "dovecot_storage_version = 2.4.1",
            "ssl_server_cert_file = \(files.certificate)",
            "ssl_server_key_file = \(files.key)",
            "auth_allow_cleartext = no",
            "mail_driver = maildir",
            "mail_path = \(mail)/%{user}",
            "passdb static {\n password = secret\n}",
            "userdb static {\n fields {\n uid = nobody\n gid = nogroup\n home = \(mail)/%{user}\n }\n}",
        ]
            + (root.map {
                [
                    "ssl_server_ca_file = \($0)", "ssl_server_request_client_cert = yes", "ssl_server_require_crl = no",
                    "auth_ssl_require_client_cert = yes",
                ]
            } ?? [])
    }

    /// The version as printed by the program: "2.3.19.1 (…)".
    private static func version() throws -> String {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["dovecot", "--version"]
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let text = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
        process.waitUntilExit()
        return text
    }
}
