import Foundation
import Testing

@testable import SockcatCommands

@Suite struct LatencyHistogramTests {
    private func histogram(_ nanoseconds: some Sequence<Int>) -> LatencyHistogram {
        var histogram = LatencyHistogram()
        for number in nanoseconds { histogram.record(.nanoseconds(number)) }
        return histogram
    }

    @Test func percentilesAreAccurate() {
        let histogram = histogram((1...100_000).map { $0 * 100 })
        for percent in [1.0, 50, 90, 99, 99.9] {
            let exact = percent / 100 * 10_000_000
            let value = Double(histogram.percentile(percent).nanoseconds)
            #expect(value >= exact && value <= exact * 1.04, "\(percent) %: \(value)")
        }
        #expect(histogram.minimum == .nanoseconds(100) && histogram.maximum == .milliseconds(10))
        #expect(histogram.percentile(100) == histogram.maximum)
    }

    @Test(arguments: [0, 1, 31, 32, 33, 63, 64, 1_000, 123_456_789, 3_600_000_000_000])
    func aSingleDurationIsEveryPercentile(nanoseconds: Int) {
        let histogram = histogram([nanoseconds])
        #expect(histogram.percentile(0) == .nanoseconds(nanoseconds))
        #expect(histogram.percentile(100) == .nanoseconds(nanoseconds))
        #expect(histogram.mean == .nanoseconds(nanoseconds))
    }

    @Test func anEmptyHistogramIsZero() {
        #expect(LatencyHistogram().percentile(50) == .zero && LatencyHistogram().rows.isEmpty)
    }

    @Test func mergingIsTheSameAsRecording() {
        let values = (0..<1_000).map { _ in Int.random(in: 0...10_000_000) }
        var merged = histogram(values.prefix(400))
        merged.merge(histogram(values.dropFirst(400)))
        merged.merge(LatencyHistogram())
        #expect(merged == histogram(values))
    }

    @Test func rowsContainEachDurationOnce() {
        let histogram = histogram((0..<1_000).map { _ in Int.random(in: 1...5_000_000_000) })
        #expect(histogram.rows.map(\.count).reduce(0, +) == 1_000)
        #expect(histogram.rows.first?.count != 0 && histogram.rows.last?.count != 0)
    }
}

@Suite struct EscapedTextTests {
    @Test(arguments: [("PING\\r\\n", "PING\r\n"), ("\\x41\\\\\\t\\0", "A\\\t\0"), ("ü", "ü"), ("", "")])
    func escapesAreReplaced(text: String, expected: String) {
        #expect(EscapedText(argument: text)?.bytes == Data(expected.utf8))
    }

    @Test(arguments: ["\\", "\\q", "\\x4", "\\xzz"]) func unknownEscapesAreErrors(text: String) {
        #expect(EscapedText(argument: text) == nil)
    }
}

@Suite struct HTTPHeadTests {
    private func head(_ lines: String...) throws -> HTTPResponse.Head {
        try HTTPResponse.Head((lines + ["", ""]).joined(separator: "\r\n"))
    }

    @Test func theEndOfTheBodyIsFound() throws {
        #expect(try head("HTTP/1.1 200 OK", "Content-Length: 12").body == .length(12))
        #expect(try head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Content-Length: 1").body == .chunks)
        #expect(try head("HTTP/1.1 204 No Content").body == .none)
        #expect(try head("HTTP/1.1 200 OK").body == .untilEnd)
    }

    @Test func theServerMayCloseTheConnection() throws {
        #expect(try head("HTTP/1.1 200 OK", "connection: Close", "content-length: 0").closes)
        #expect(try head("HTTP/1.0 200 OK", "content-length: 0").closes)
        #expect(try !head("HTTP/1.1 200 OK", "content-length: 0").closes)
    }

    @Test(arguments: ["HTTP/1.1 404 Not Found", "SSH-2.0-OpenSSH", "", "HTTP/1.1", "HTTP/1.1 200 OK\r\nContent-Length: -1"])
    func otherRepliesAreErrors(text: String) {
        #expect(throws: Failure.self) { try HTTPResponse.Head(text + "\r\n\r\n") }
    }
}
