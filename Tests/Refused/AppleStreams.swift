// error: 'readStream()' is unavailable: Linux has no Core Foundation streams: use the socket's read methods

import CocoaAsyncSocket
import Foundation

func background(_ socket: GCDAsyncSocket) { _ = socket.readStream() }
