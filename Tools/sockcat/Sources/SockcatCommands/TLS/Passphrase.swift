internal import FoundationEssentials
internal import Glibc
internal import Synchronization

/// The passphrase of a private key.
struct Passphrase {
    /// Passphrases that were entered on the terminal, by the path of the key. A server reads its key again
    /// when the file changes, but must not prompt again.
    private static let entered = Mutex<[String: String]>([:])

    let file: String?

    /// Returns the passphrase of the key at a path.
    func read(for path: String) throws -> String {
        if let file {
            return TextLines(try LocalFile.text(file)).first ?? ""
        }
        if let text = Environment.value("SOCKCAT_PASSPHRASE") { return text }
        return try Self.entered.withLock { entered in
            let text = try entered[path] ?? Self.prompt(for: path)
            entered[path] = text
            return text
        }
    }

    private static func prompt(for path: String) throws -> String {
        // Without a terminal, getpass(3) would read standard input.
        let terminal = open("/dev/tty", O_RDWR | O_CLOEXEC)
        if terminal >= 0 { close(terminal) }
        let prompt: PrintableText = "Passphrase of \"\(path)\": "
        guard terminal >= 0, let text = getpass(prompt.text) else {
            throw Failure("no passphrase was given, and there is no terminal to prompt on", status: .fileFailed)
        }
        return String(cString: text)
    }
}
