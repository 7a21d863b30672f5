internal import Glibc

/// Detects changes to a file or directory by its path, device, inode, size and modification time. A missing
/// file also has a stamp.
package struct FileStamp: Hashable, Sendable {
    private let path: String
    private var device: UInt = 0
    private var inode: UInt = 0
    private var size = 0
    private var seconds = 0
    private var nanoseconds = 0

    package init(path: String) {
        self.path = path
        var facts = stat()
        guard stat(path, &facts) == 0 else { return }
        device = UInt(facts.st_dev)
        inode = UInt(facts.st_ino)
        size = Int(facts.st_size)
        seconds = facts.st_mtim.tv_sec
        nanoseconds = facts.st_mtim.tv_nsec
    }

}

extension FileStamp: Digestible {
    func append(to fields: inout DigestFields) {
        fields.append(Array(path.utf8))
        for number in [Int(bitPattern: device), Int(bitPattern: inode), size, seconds, nanoseconds] { fields.append(number) }
    }
}
