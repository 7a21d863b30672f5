// Rules of the quota:
//  1. The smallest quota among the process's control group and its visible ancestors applies. In a
//     container, ancestors are visible only up to the container's own group (cgroups(7)).
//  2. Both versions of control groups are supported: `cpu.max` of version 2, and `cpu.cfs_quota_us` with
//     `cpu.cfs_period_us` of version 1.
//  3. A file that cannot be read or parsed sets no limit.

internal import Glibc

/// The CPU quota of this process's control groups.
package struct ProcessorQuota: Sendable {
    /// Returns the contents of a file, or `nil` if it cannot be read.
    package typealias Reading = (_ path: String) -> String?

    /// The quota in CPUs, such as 0.5; `nil` if CPU use is not limited.
    package let processors: Double?

    package static var current: ProcessorQuota { ProcessorQuota(reading: readFile) }

    /// - Parameter read: Reads `/proc/self/cgroup`, `/proc/self/mountinfo`, and the files of the groups.
    package init(reading read: Reading) {
        let groups = Self.groups(in: read("/proc/self/cgroup") ?? "")
        let mounts = Self.lines(of: read("/proc/self/mountinfo") ?? "").compactMap { ControlGroupMount($0) }
        let shares = mounts.flatMap { mount in
            groups.filter { $0.isUnified == mount.isUnified }.flatMap { group in
                mount.folders(of: group.path).compactMap { Self.share(in: $0, mount.isUnified, read) }
            }
        }
        processors = shares.min()
    }

    /// Returns the number of threads that can make use of the quota, which is at least one.
    ///
    /// - Parameter usable: How many processors the process may run on.
    package func threadCount(usable: Int) -> Int {
        guard let processors, processors < Double(usable) else { return max(1, usable) }
        return max(1, Int(processors.rounded(.up)))
    }

    /// Returns the groups with a `cpu` controller, from lines such as `4:cpu,cpuacct:/path`, or `0::/path`
    /// for version 2.
    private static func groups(in text: String) -> [(path: String, isUnified: Bool)] {
        lines(of: text).compactMap { line in
            let fields = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard fields.count == 3 else { return nil }
            let isUnified = fields[0] == "0" && fields[1].isEmpty
            guard isUnified || fields[1].split(separator: ",").contains("cpu") else { return nil }
            return (String(fields[2]), isUnified)
        }
    }

    /// Splits bytes, because a name may end with CR, and "\r\n" is one `Character`.
    private static func lines(of text: String) -> [Substring] {
        text.utf8.split(separator: UInt8(ascii: "\n")).map { Substring($0) }
    }

    private static func share(in folder: String, _ isUnified: Bool, _ read: Reading) -> Double? {
        let names = isUnified ? ["cpu.max"] : ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        let texts = names.map { read("\(folder)/\($0)") ?? "" }.joined(separator: " ")
        // "max" and -1 mean unlimited.
        let numbers = texts.split(whereSeparator: \.isWhitespace).map { Double($0) ?? -1 }
        guard numbers.count == 2, numbers[0] > 0, numbers[1] > 0 else { return nil }
        return numbers[0] / numbers[1]
    }

    /// Reads up to the end of the file, because files in `/proc` report no size.
    private static func readFile(_ path: String) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 16_384)
        while bytes.count < sizeLimit {
            let count = retryingOnInterrupt { Glibc.read(descriptor, &piece, piece.count) }
            guard count > 0 else { break }
            bytes += piece[..<count]
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// A machine with many containers has thousands of mounts, one per line.
    private static let sizeLimit = 4 << 20
}

/// A mount of control groups with a `cpu` controller, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
private struct ControlGroupMount {
    let isUnified: Bool
    /// The group at the mount point.
    private let root: String
    private let folder: String

    init?(_ line: Substring) {
        let fields = line.split(separator: " ")
        guard let dash = fields.firstIndex(of: "-"), dash >= 6, fields.count > dash + 1 else { return nil }
        switch fields[dash + 1] {
        case "cgroup2": isUnified = true
        case "cgroup" where fields.last?.split(separator: ",").contains("cpu") == true: isUnified = false
        default: return nil
        }
        (root, folder) = (Self.unescaped(fields[3]), Self.unescaped(fields[4]))
    }

    /// Returns the folders of a group and its ancestors.
    func folders(of group: String) -> [String] {
        var folders = [folder]
        // A group outside the root belongs to the host of the container.
        guard let path = Self.path(of: group, below: root), !path.contains("..") else { return folders }
        for name in path { folders.append("\(folders[folders.count - 1])/\(name)") }
        return folders
    }

    private static func path(of group: String, below root: String) -> ArraySlice<Substring>? {
        let (names, top) = (group.split(separator: "/"), root.split(separator: "/"))
        return names.starts(with: top) ? names.dropFirst(top.count) : nil
    }

    /// Replaces escapes such as `\040` for a space.
    private static func unescaped(_ field: Substring) -> String {
        var bytes: [UInt8] = []
        var rest = field.utf8[...]
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            if byte == UInt8(ascii: "\\"), digits.count == 3, let code = UInt8(String(Substring(digits)), radix: 8) {
                bytes.append(code)
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
