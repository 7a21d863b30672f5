// error: instance method 'socket(_:didRead:withTag:)' nearly matches defaulted requirement

import CocoaAsyncSocket
import Foundation

final class Reader: NSObject {}

/// A delegate's method has an exclamation mark after each type or after none. Other forms are not called.
extension Reader: GCDAsyncSocketDelegate {
    func socket(_ sock: GCDAsyncSocket, didRead data: Data!, withTag tag: Int) {}
}
