// Rules of CONNECT (RFC 9110, section 9.3.6; RFC 9112):
//  1. There is exactly one request. It includes the credentials, if any.
//  2. Responses are read line by line. Each line must end with CRLF, and a bare CR or LF fails the
//     negotiation. RFC 9112, section 2.2, allows more lenient parsing, but the tunnel starts right after the
//     head, so both sides must agree on that position.
//  3. A 1xx response is skipped, except 101, which was not requested. After a 2xx response, the tunnel
//     starts right after the empty line, and Content-Length and Transfer-Encoding are ignored. Any other
//     response is a refusal: the error contains the status line and is reported without reading further.
//  4. All response heads together may have at most `headLimit` bytes.

internal import FoundationEssentials
internal import SocketBuffers

/// The client side of an HTTP CONNECT negotiation.
package struct HTTPConnectNegotiation: Sendable {
    /// The maximum number of bytes that a proxy may send before the tunnel is established.
    package static let headLimit = 16 * 1024

    private enum Expected {
        case statusLine
        case fields(ofInterimResponse: Bool)
    }

    var output: ArraySlice<UInt8>
    private var expected = Expected.statusLine
    private var byteCount = 0

    init(target: ProxyTarget, credentials: SocketProxy.Credentials?) throws(ProxyFailure) {
        let authority = Self.authority(of: target)
        var head = "CONNECT \(authority) HTTP/1.1\r\nHost: \(authority)\r\n"
        if let credentials { head += "Proxy-Authorization: Basic \(try Self.basic(credentials))\r\n" }
        output = Array("\(head)\r\n".utf8)[...]
    }

    /// Consumes complete lines. Returns `true` once the tunnel is established.
    mutating func isEstablished(by buffer: PreBuffer) throws(ProxyFailure) -> Bool {
        while output.isEmpty, let line = try takeLine(from: buffer) {
            switch expected {
            case .statusLine:
                expected = .fields(ofInterimResponse: try isInterim(StatusLine(line)))
            case .fields(let ofInterimResponse) where line.isEmpty:
                guard ofInterimResponse else { return true }
                expected = .statusLine
            case .fields:
                continue
            }
        }
        return false
    }

    // MARK: - The request

    /// The target in authority form (RFC 9112, section 3.2.3).
    private static func authority(of target: ProxyTarget) -> String {
        switch target {
        case .name(let name, let port): "\(name):\(port)"
        case .address(let address): "\(address)"
        }
    }

    /// The credentials for the "Basic" scheme (RFC 7617, section 2).
    private static func basic(_ credentials: SocketProxy.Credentials) throws(ProxyFailure) -> String {
        let isControl: (UInt8) -> Bool = { $0 < 0x20 || $0 == 0x7f }
        guard !credentials.username.utf8.contains(where: isControl), !credentials.password.utf8.contains(where: isControl) else {
            throw ProxyFailure(.invalid, "the proxy user name or password contains a control character")
        }
        guard !credentials.username.utf8.contains(UInt8(ascii: ":")) else {
            throw ProxyFailure(.invalid, "the proxy user name contains a colon, which HTTP does not allow")
        }
        return Data("\(credentials.username):\(credentials.password)".utf8).base64EncodedString()
    }

    // MARK: - The responses

    /// Returns the next line without its CRLF, or `nil` if the line is incomplete.
    private mutating func takeLine(from buffer: PreBuffer) throws(ProxyFailure) -> [UInt8]? {
        if case .statusLine = expected { try StatusLine.checkBeginning(buffer.readableBytes) }
        let lineFeed = UInt8(ascii: "\n")
        let end = withUnsafeBytes(of: lineFeed) { buffer.endOfFirst($0) }
        guard byteCount + (end ?? buffer.count) <= Self.headLimit else {
            throw ProxyFailure(.misbehaved, "the response header exceeds \(Self.headLimit) bytes")
        }
        guard let end else { return nil }
        byteCount += end
        let line = Array(buffer.readableBytes.prefix(end - 1))
        buffer.consume(end)
        let carriageReturn = UInt8(ascii: "\r")
        guard line.firstIndex(of: carriageReturn) == line.count - 1 else {
            throw ProxyFailure(.misbehaved, "a line in the response does not end with CRLF: \(ProxyFailure.quote(line))")
        }
        return line.dropLast()
    }

    /// Whether this is an interim response, which is followed by another response.
    private func isInterim(_ line: StatusLine) throws(ProxyFailure) -> Bool {
        switch line.code {
        case 101: throw ProxyFailure(.misbehaved, "the proxy switched protocols without a request: \(line.quoted)")
        case 100..<200: return true
        case 200..<300: return false
        // 407 is the status code for proxies (RFC 9110, section 15.5.8), but tinyproxy responds with 401 to
        // unknown credentials.
        case 401, 407: throw ProxyFailure(.authenticationRequired, "the proxy responded with \(line.quoted)")
        default: throw ProxyFailure(.refused, "the proxy responded with \(line.quoted)")
        }
    }
}

/// The first line of a response, such as `HTTP/1.1 200 Connection established`.
private struct StatusLine {
    let code: Int
    /// The line, escaped for use in error messages.
    let quoted: String

    private static let beginning = Array("HTTP/1.".utf8)

    /// Throws if `bytes` cannot be the start of an HTTP/1 response.
    static func checkBeginning(_ bytes: UnsafeRawBufferPointer) throws(ProxyFailure) {
        guard !zip(bytes, beginning).allSatisfy(==) else { return }
        throw ProxyFailure(.misbehaved, "the proxy does not speak HTTP/1: \(ProxyFailure.quote(bytes))")
    }

    /// Parses `HTTP-version SP status-code SP [ reason-phrase ]` (RFC 9112, section 4). If the reason phrase
    /// is omitted, the last space may be missing too.
    init(_ line: [UInt8]) throws(ProxyFailure) {
        quoted = ProxyFailure.quote(line)
        let isDigit: (UInt8) -> Bool = { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        let space = UInt8(ascii: " ")
        let digits = line.dropFirst(9).prefix(3)
        guard line.count >= 12, isDigit(line[7]), line[8] == space, digits.allSatisfy(isDigit),
            line.count == 12 || line[12] == space
        else { throw ProxyFailure(.misbehaved, "the response has no status line: \(quoted)") }
        code = digits.reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) }
        guard (100..<600).contains(code) else { throw ProxyFailure(.misbehaved, "the status code is invalid: \(quoted)") }
    }
}
