internal import ArgumentParser

/// Files with options, which are inserted into the arguments before these are parsed.
enum ConfigurationFile {
    /// A line of a file.
    struct Setting: Equatable {
        let name: String
        let arguments: [String]
        /// The place of the line, such as "line 3 of "relay.conf"".
        let place: String
    }

    /// Arguments in which the options of files have been inserted.
    struct Expansion {
        let arguments: [String]
        let settings: [Setting]

        /// Returns the place of the option that a message of the argument parser names, or `nil` if the
        /// option is not from a file.
        func place(ofOptionIn message: String) -> String? {
            let options = OptionNames.options(in: message)
            for option in options {
                let settings = settings.filter { "--\($0.name)" == option }
                if settings.isEmpty { continue }
                let exact = settings.first { $0.arguments.contains { message.contains("'\($0.dropFirst(option.count + 1))'") } }
                return (exact ?? settings[0]).place
            }
            return nil
        }
    }

    private static let option = "--config"

    /// Replaces each `--config FILE` of the command `relay` with the options of the file.
    ///
    /// An option on the command line replaces all options of the same name in the files, and an option in a
    /// later file replaces those of the earlier files. Otherwise, a repeatable option in a file could be
    /// extended, but not narrowed.
    ///
    /// - Parameter read: Returns the text of a file.
    static func expansion(_ arguments: [String], read: (String) throws -> String = LocalFile.text) throws -> Expansion {
        guard arguments.first == Relay.configuration.commandName else { return Expansion(arguments: arguments, settings: []) }
        var rest: [String] = []
        var settings: [Setting] = []
        var position = 1
        while position < arguments.count {
            let argument = arguments[position]
            if argument == option, position + 1 < arguments.count {
                position += 1
                try add(arguments[position], to: &settings, read)
            } else if argument.hasPrefix("\(option)=") {
                try add(String(argument.dropFirst(option.count + 1)), to: &settings, read)
            } else {
                rest.append(argument)
            }
            position += 1
        }
        remove(rest.compactMap(name), from: &settings)
        return Expansion(arguments: arguments.prefix(1) + settings.flatMap(\.arguments) + rest, settings: settings)
    }

    /// Returns the arguments of `expansion`.
    static func expand(_ arguments: [String], read: (String) throws -> String = LocalFile.text) throws -> [String] {
        try expansion(arguments, read: read).arguments
    }

    private static func add(_ path: String, to settings: inout [Setting], _ read: (String) throws -> String) throws {
        let added = try parse(read(path), of: path)
        remove(added.map(\.name), from: &settings)
        settings += added
    }

    private static func remove(_ names: [String], from settings: inout [Setting]) {
        settings.removeAll { names.contains($0.name) }
    }

    /// Returns the name in "--name" and "--name=value", and `nil` for other arguments.
    private static func name(_ argument: String) -> String? {
        argument.hasPrefix("--") ? String(argument.dropFirst(2).prefix { $0 != "=" }) : nil
    }

    /// Returns the options in a text with lines such as "listen = 8443", "listen 8443" or "listen-tls".
    static func parse(_ text: String, of path: String) throws -> [Setting] {
        var settings: [Setting] = []
        for (index, line) in TextLines(text).enumerated() {
            let (trimmed, place) = (line.trimmed, "line \(index + 1) of \"\(path)\"")
            if trimmed.isEmpty || trimmed.hasPrefix("#") { continue }
            let end = trimmed.firstIndex { $0 == "=" || $0.isWhitespace } ?? trimmed.endIndex
            let name = trimmed[..<end]
            guard let first = name.first, first.isLetter, name.allSatisfy({ $0.isLetter || $0.isNumber || $0 == "-" }),
                name != "config"
            else {
                throw Failure(
                    "\(place) is not an option: \(trimmed)",
                    advice: "write the name of an option of `sockcat relay --help`, without dashes", status: .usage)
            }
            var value = trimmed[end...].trimmed
            if value.hasPrefix("=") { value = value.dropFirst().trimmed }
            settings.append(Setting(name: String(name), arguments: arguments(String(name), String(value)), place: place))
        }
        return settings
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

extension String {
    fileprivate var unquoted: String {
        count > 1 && hasPrefix("\"") && hasSuffix("\"") ? String(dropFirst().dropLast()) : self
    }
}
