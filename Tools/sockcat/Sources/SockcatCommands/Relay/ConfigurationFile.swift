internal import ArgumentParser

/// A file with options, which are inserted into the arguments before these are parsed.
enum ConfigurationFile {
    private static let option = "--config"

    /// Replaces `--config FILE` of the command `relay` with the options of the file. They precede the other
    /// options, so that options on the command line take precedence.
    ///
    /// - Parameter read: Returns the text of a file.
    static func expand(_ arguments: [String], read: (String) throws -> String = LocalFile.text) throws -> [String] {
        guard arguments.first == Relay.configuration.commandName else { return arguments }
        var rest: [String] = []
        var options: [String] = []
        var position = 1
        while position < arguments.count {
            let argument = arguments[position]
            if argument == option, position + 1 < arguments.count {
                position += 1
                options += try parse(read(arguments[position]), of: arguments[position])
            } else if argument.hasPrefix("\(option)=") {
                let path = String(argument.dropFirst(option.count + 1))
                options += try parse(read(path), of: path)
            } else {
                rest.append(argument)
            }
            position += 1
        }
        return arguments.prefix(1) + options + rest
    }

    /// Returns the options in a text with lines such as "listen = 8443", "listen 8443" or "listen-tls".
    static func parse(_ text: String, of path: String) throws -> [String] {
        var options: [String] = []
        for (index, line) in TextLines(text).enumerated() {
            let trimmed = line.trimmed
            if trimmed.isEmpty || trimmed.hasPrefix("#") { continue }
            let end = trimmed.firstIndex { $0 == "=" || $0.isWhitespace } ?? trimmed.endIndex
            let name = trimmed[..<end]
            guard let first = name.first, first.isLetter, name.allSatisfy({ $0.isLetter || $0.isNumber || $0 == "-" }),
                name != "config"
            else {
                throw Failure(
                    "line \(index + 1) of \"\(path)\" is not an option: \(trimmed)",
                    advice: "write the name of an option of `sockcat relay --help`, without dashes", status: .usage)
            }
            var value = trimmed[end...].trimmed
            if value.hasPrefix("=") { value = value.dropFirst().trimmed }
            options += arguments(String(name), String(value))
        }
        return options
    }

    private static func arguments(_ name: String, _ value: String) -> [String] {
        switch value.lowercased() {
        case "", "yes", "true", "on": ["--\(name)"]
        case "no", "false", "off": []
        // With "=", a value may begin with a dash.
        default: ["--\(name)=\(value.unquoted)"]
        }
    }
}

extension StringProtocol {
    fileprivate var unquoted: String {
        count > 1 && hasPrefix("\"") && hasSuffix("\"") ? String(dropFirst().dropLast()) : String(self)
    }
}
