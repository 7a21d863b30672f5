import Foundation
import SocketCore

@testable import AsyncSockets

// Packets for a delegate, identified by a tag.

extension ReadPacket {
    static func make(_ goal: Goal, maxLength: Int = .max, timeout: Double, tag: Int) -> ReadPacket {
        .make(goal, maxLength: maxLength, timeout: timeout, completion: .delegate(tag: tag))
    }
}

extension WritePacket {
    init(data: Data, timeout: Double, tag: Int) {
        self.init(data: data, timeout: timeout, completion: .delegate(tag: tag))
    }

    init(file: FileRegion, timeout: Double, tag: Int) {
        self.init(file: file, timeout: timeout, completion: .delegate(tag: tag))
    }
}
