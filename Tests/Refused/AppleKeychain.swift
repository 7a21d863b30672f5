// error: 'SecItemCopyMatching' is unavailable: Linux has no Keychain: read the identity from a file

import CocoaAsyncSocket
import Foundation

func identity(_ query: NSDictionary) -> OSStatus {
    var item: CFTypeRef?
    return SecItemCopyMatching(query, &item)
}
