// error: 'NetServiceBrowser' is unavailable: Linux has no NetServiceBrowser: browse with Avahi

import CocoaAsyncSocket
import Foundation

final class Finder: NSObject {
    var browser: NetServiceBrowser?
}
