internal import Foundation

struct TLSDictionaryValues {
    struct Refusal: Error {
        let message: String
    }

    private let dictionary: [String: NSObject]

    /// Throws if the dictionary contains a key that CocoaAsyncSocket rejects on Apple platforms.
    init(_ dictionary: [String: NSObject]) throws(Refusal) {
        self.dictionary = dictionary
        let unavailable = [
            kCFStreamSSLAllowsAnyRoot, kCFStreamSSLAllowsExpiredRoots, kCFStreamSSLValidatesCertificateChain,
            kCFStreamSSLAllowsExpiredCertificates, kCFStreamSSLLevel,
        ]
        for key in unavailable where dictionary[key as String] != nil {
            throw Refusal(message: "Security option unavailable - \(key)")
        }
    }

    func string(_ key: String) throws(Refusal) -> String? {
        try value(key, "NSString", as: NSString.self).map { $0 as String }
    }

    func data(_ key: String) throws(Refusal) -> Data? {
        try value(key, "NSData", as: NSData.self).map { Data(referencing: $0) }
    }

    func number(_ key: String) throws(Refusal) -> NSNumber? {
        try value(key, "NSNumber", as: NSNumber.self)
    }

    func isTrue(_ key: String) throws(Refusal) -> Bool {
        try number(key)?.boolValue ?? false
    }

    /// Returns an array after checking the type of every item.
    func array<Item>(_ key: String, _ name: String, _ cast: (Any) -> Item?) throws(Refusal) -> [Item]? {
        guard let array = try value(key, "NSArray", as: NSArray.self) else { return nil }
        var items: [Item] = []
        for element in array {
            guard let item = cast(element) else {
                throw .init(message: "Invalid value for \(key). Each item of the array must be of type \(name).")
            }
            items.append(item)
        }
        return items
    }

    private func value<Value>(_ key: String, _ name: String, as type: Value.Type) throws(Refusal) -> Value? {
        guard let object = dictionary[key] else { return nil }
        guard let value = object as? Value else {
            throw .init(message: "Invalid value for \(key). Value must be of type \(name).")
        }
        return value
    }
}
