internal import FoundationEssentials
internal import Glibc

/// Writes a command's files to a directory. Files are written completely or not at all.
struct OutputFiles {
    let directory: String
    let replacesFiles: Bool

    /// A file to write. Only its owner can read a secret file.
    struct File {
        let name: String
        let contents: Data
        let isSecret: Bool

        init(name: String, bytes: some Sequence<UInt8>, isSecret: Bool) {
            (self.name, contents, self.isSecret) = (name, Data(bytes), isSecret)
        }

        static func certificate(_ name: String, _ pem: String) -> File {
            File(name: name, bytes: pem.utf8, isSecret: false)
        }

        static func key(_ name: String, _ pem: String) -> File {
            File(name: name, bytes: pem.utf8, isSecret: true)
        }
    }

    /// Writes the files and returns their paths. Writes none of them if one exists and must not be replaced.
    @discardableResult
    func write(_ files: [File]) throws -> [String] {
        try LocalFile.makeDirectory(directory)
        let paths = files.map { directory == "." ? $0.name : directory + "/" + $0.name }
        if !replacesFiles, let existing = paths.first(where: { FileManager.default.fileExists(atPath: $0) }) {
            throw Failure(
                "the file \"\(existing)\" already exists",
                advice: "pass --force to replace it, or --directory to write elsewhere", status: .fileFailed)
        }
        for (file, path) in zip(files, paths) {
            try FileReplacement.write(file.contents, to: path, mode: file.isSecret ? 0o600 : 0o644)
        }
        return paths
    }

    /// Returns a file name without characters that are special in a shell or a path: "*.example.org" becomes
    /// "_.example.org".
    static func baseName(for name: String) -> String {
        let safe = name.unicodeScalars.map { scalar -> Character in
            let isSafe = scalar.isASCII && (scalar.properties.isAlphabetic || scalar.properties.numericType != nil)
            return isSafe || "._@-".unicodeScalars.contains(scalar) ? Character(scalar) : "_"
        }
        let text = String(safe)
        return text.hasPrefix(".") || text.hasPrefix("-") ? "_" + text.dropFirst() : text
    }
}

/// Reads the files that a command line names. "-" is standard input.
enum InputFile {
    static func bytes(_ path: String) throws -> [UInt8] {
        path == "-" ? try LocalFile.bytes(of: STDIN_FILENO, named: "standard input") : try LocalFile.bytes(path)
    }

    static func text(_ path: String) throws -> String {
        String(decoding: try bytes(path), as: UTF8.self)
    }
}
