// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase, NoLeadingUnderscores

public import Foundation

/// The domain of `GCDAsyncSocketError`.
public let GCDAsyncSocketErrorDomain = "GCDAsyncSocketErrorDomain"

/// An error from a socket, other than a system error or a TLS error.
///
/// The delegate receives errors of this type, so both `error as? GCDAsyncSocketError` and `(error as
/// NSError).code` work. `userInfo[NSUnderlyingErrorKey]` contains the more detailed error from AsyncSockets.
public struct GCDAsyncSocketError: Error, CustomNSError, Hashable {
    /// The kinds of error, with the same numbers as on Apple platforms.
    public enum Code: Int, Sendable {
        /// Never used.
        case noError = 0
        /// The socket's state does not allow the call.
        case badConfigError = 1
        /// An argument is invalid.
        case badParamError = 2
        /// The connection was not established before its timeout.
        case connectTimeoutError = 3
        /// A read did not complete before its timeout.
        case readTimeoutError = 4
        /// A write did not complete before its timeout.
        case writeTimeoutError = 5
        /// `maxLength` bytes arrived without the delimiter.
        case readMaxedOutError = 6
        /// The peer closed the connection cleanly.
        case closedError = 7
        /// Any other error. See the description.
        case otherError = 8
    }

    private let contents: NSError

    /// Creates an error with a description and other details in `userInfo`.
    public init(_ code: Code, userInfo: [String: Any] = [:]) {
        contents = NSError(domain: GCDAsyncSocketErrorDomain, code: code.rawValue, userInfo: userInfo)
    }

    init(_ code: Code, _ description: String) {
        self.init(code, userInfo: [NSLocalizedDescriptionKey: description])
    }

    /// Creates the error that an `NSError` of the same domain represents.
    public init(_nsError error: NSError) {
        self = GCDAsyncSocketError(error) ?? GCDAsyncSocketError(.otherError, userInfo: error.userInfo)
    }

    private init?(_ error: NSError) {
        guard error.domain == GCDAsyncSocketErrorDomain, Code(rawValue: error.code) != nil else { return nil }
        contents = error
    }

    /// The kind of error.
    public var code: Code { Code(rawValue: contents.code) ?? .otherError }
    /// The description and other details, by `NSError` key.
    public var userInfo: [String: Any] { contents.userInfo }
    /// The description in English.
    public var localizedDescription: String { contents.localizedDescription }

    /// The domain, `GCDAsyncSocketErrorDomain`.
    public static var errorDomain: String { GCDAsyncSocketErrorDomain }
    /// The number of the code.
    public var errorCode: Int { contents.code }
    /// The same value as `userInfo`.
    public var errorUserInfo: [String: Any] { contents.userInfo }
}

extension GCDAsyncSocketError {
    /// The code `Code.noError`.
    public static var noError: Code { .noError }
    /// The code `Code.badConfigError`.
    public static var badConfigError: Code { .badConfigError }
    /// The code `Code.badParamError`.
    public static var badParamError: Code { .badParamError }
    /// The code `Code.connectTimeoutError`.
    public static var connectTimeoutError: Code { .connectTimeoutError }
    /// The code `Code.readTimeoutError`.
    public static var readTimeoutError: Code { .readTimeoutError }
    /// The code `Code.writeTimeoutError`.
    public static var writeTimeoutError: Code { .writeTimeoutError }
    /// The code `Code.readMaxedOutError`.
    public static var readMaxedOutError: Code { .readMaxedOutError }
    /// The code `Code.closedError`.
    public static var closedError: Code { .closedError }
    /// The code `Code.otherError`.
    public static var otherError: Code { .otherError }
}

extension GCDAsyncSocketError.Code {
    /// Returns whether an error has this code, for patterns such as `catch GCDAsyncSocketError.closedError`.
    public static func ~= (code: Self, error: any Error) -> Bool {
        (error as? GCDAsyncSocketError)?.code == code
    }
}

// Enables `error as? NSError` for this type, and `error as? GCDAsyncSocketError` for an NSError. On Linux,
// this protocol is Swift's only way to cast between the two.
extension GCDAsyncSocketError: _ObjectiveCBridgeable {
    /// Bridges to `NSError`. Called by the compiler.
    public func _bridgeToObjectiveC() -> NSError { contents }

    /// Bridges from `NSError`. Called by the compiler.
    public static func _forceBridgeFromObjectiveC(_ source: NSError, result: inout GCDAsyncSocketError?) {
        result = GCDAsyncSocketError(source)
    }

    /// Bridges from `NSError` if the domain and code match. Called by the compiler.
    public static func _conditionallyBridgeFromObjectiveC(
        _ source: NSError, result: inout GCDAsyncSocketError?
    ) -> Bool {
        result = GCDAsyncSocketError(source)
        return result != nil
    }

    /// Bridges from `NSError`, or returns `otherError`. Called by the compiler.
    public static func _unconditionallyBridgeFromObjectiveC(_ source: NSError?) -> GCDAsyncSocketError {
        source.flatMap { GCDAsyncSocketError($0) } ?? GCDAsyncSocketError(.otherError)
    }
}
