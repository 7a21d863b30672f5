package import Foundation
package import SocketCore

// Packets that answer to a delegate, by a tag.

extension ReadPacket {
    package static func make(_ goal: Goal, maxLength: Int = .max, timeout: Double, tag: Int) -> ReadPacket {
        .make(goal, maxLength: maxLength, timeout: timeout, completion: .delegate(tag: tag))
    }
}

extension WritePacket {
    package init(data: Data, timeout: Double, tag: Int) {
        self.init(data: data, timeout: timeout, completion: .delegate(tag: tag))
    }

    package init(file: FileRegion, timeout: Double, tag: Int) {
        self.init(file: file, timeout: timeout, completion: .delegate(tag: tag))
    }
}
