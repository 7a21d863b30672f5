// error: instance method 'socket(_:didRead:withTags:)' nearly matches defaulted requirement

import CocoaAsyncSocket
import Foundation

final class Reader: NSObject {}

extension Reader: GCDAsyncSocketDelegate {
    func socket(_ sock: GCDAsyncSocket, didRead data: Data, withTags tag: Int) {}
}
