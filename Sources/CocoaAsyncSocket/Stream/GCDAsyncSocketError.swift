// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase, NoLeadingUnderscores

public import Foundation

/// The domain of `GCDAsyncSocketError`.
public let GCDAsyncSocketErrorDomain = "GCDAsyncSocketErrorDomain"

/// An error of a socket that is not one of the system or of TLS.
///
/// The socket delivers it as this type, so `error as? GCDAsyncSocketError` and `(error as NSError).code` both
/// work. `userInfo[NSUnderlyingErrorKey]` has the error of AsyncSockets, which says more.
public struct GCDAsyncSocketError: Error, CustomNSError, Hashable {
    /// The kinds of error, with the numbers of the original.
    public enum Code: Int, Sendable {
        /// Never used.
        case noError = 0
        /// The socket's state does not allow the call.
        case badConfigError = 1
        /// An argument is invalid.
        case badParamError = 2
        /// The connection was not established in time.
        case connectTimeoutError = 3
        /// A read was not complete in time.
        case readTimeoutError = 4
        /// A write was not complete in time.
        case writeTimeoutError = 5
        /// `maxLength` bytes came without the delimiter.
        case readMaxedOutError = 6
        /// The peer closed the connection in good order.
        case closedError = 7
        /// Something else: see the description.
        case otherError = 8
    }

    private let contents: NSError

    /// An error with a description and the like in `userInfo`.
    public init(_ code: Code, userInfo: [String: Any] = [:]) {
        contents = NSError(domain: GCDAsyncSocketErrorDomain, code: code.rawValue, userInfo: userInfo)
    }

    init(_ code: Code, _ description: String) {
        self.init(code, userInfo: [NSLocalizedDescriptionKey: description])
    }

    /// The same error, from an `NSError` of its domain.
    public init(_nsError error: NSError) {
        self = GCDAsyncSocketError(error) ?? GCDAsyncSocketError(.otherError, userInfo: error.userInfo)
    }

    private init?(_ error: NSError) {
        guard error.domain == GCDAsyncSocketErrorDomain, Code(rawValue: error.code) != nil else { return nil }
        contents = error
    }

    /// The kind of error.
    public var code: Code { Code(rawValue: contents.code) ?? .otherError }
    /// The description and the like, by the keys of `NSError`.
    public var userInfo: [String: Any] { contents.userInfo }
    /// The description in English.
    public var localizedDescription: String { contents.localizedDescription }

    /// `GCDAsyncSocketErrorDomain`.
    public static var errorDomain: String { GCDAsyncSocketErrorDomain }
    /// The number of the code.
    public var errorCode: Int { contents.code }
    /// The same as `userInfo`.
    public var errorUserInfo: [String: Any] { contents.userInfo }
}

extension GCDAsyncSocketError {
    /// `Code.noError`.
    public static var noError: Code { .noError }
    /// `Code.badConfigError`.
    public static var badConfigError: Code { .badConfigError }
    /// `Code.badParamError`.
    public static var badParamError: Code { .badParamError }
    /// `Code.connectTimeoutError`.
    public static var connectTimeoutError: Code { .connectTimeoutError }
    /// `Code.readTimeoutError`.
    public static var readTimeoutError: Code { .readTimeoutError }
    /// `Code.writeTimeoutError`.
    public static var writeTimeoutError: Code { .writeTimeoutError }
    /// `Code.readMaxedOutError`.
    public static var readMaxedOutError: Code { .readMaxedOutError }
    /// `Code.closedError`.
    public static var closedError: Code { .closedError }
    /// `Code.otherError`.
    public static var otherError: Code { .otherError }
}

extension GCDAsyncSocketError.Code {
    /// Matches an error with this code, as in `catch GCDAsyncSocketError.closedError`.
    public static func ~= (code: Self, error: any Error) -> Bool {
        (error as? GCDAsyncSocketError)?.code == code
    }
}

// This makes `error as? NSError` work from this type, and `error as? GCDAsyncSocketError` from an NSError:
// Swift on Linux casts between the two by this protocol alone.
extension GCDAsyncSocketError: _ObjectiveCBridgeable {
    /// Called by the compiler.
    public func _bridgeToObjectiveC() -> NSError { contents }

    /// Called by the compiler.
    public static func _forceBridgeFromObjectiveC(_ source: NSError, result: inout GCDAsyncSocketError?) {
        result = GCDAsyncSocketError(source)
    }

    /// Called by the compiler.
    public static func _conditionallyBridgeFromObjectiveC(
        _ source: NSError, result: inout GCDAsyncSocketError?
    ) -> Bool {
        result = GCDAsyncSocketError(source)
        return result != nil
    }

    /// Called by the compiler.
    public static func _unconditionallyBridgeFromObjectiveC(_ source: NSError?) -> GCDAsyncSocketError {
        source.flatMap { GCDAsyncSocketError($0) } ?? GCDAsyncSocketError(.otherError)
    }
}
