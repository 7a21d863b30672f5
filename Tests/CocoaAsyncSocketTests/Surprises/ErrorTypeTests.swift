import CocoaAsyncSocket
import CocoaClients
import Foundation
import Testing

@Suite struct ErrorTypeTests {
    private let closed: any Error = GCDAsyncSocketError(
        .closedError, userInfo: [NSLocalizedDescriptionKey: "Socket closed by remote peer"])

    @Test func anErrorIsAStructWithACodeAndUserInfo() throws {
        let error = try #require(closed as? GCDAsyncSocketError)
        #expect(error.code == .closedError && error.code == GCDAsyncSocketError.closedError)
        #expect(error.userInfo[NSLocalizedDescriptionKey] as? String == "Socket closed by remote peer")
        #expect(error.localizedDescription == "Socket closed by remote peer")
        #expect(closed.localizedDescription == "Socket closed by remote peer")
    }

    @Test func anErrorCanBeCastToNSErrorAndBack() throws {
        #expect((closed as NSError).code == 7 && (closed as NSError).domain == GCDAsyncSocketErrorDomain)
        let optional: (any Error)? = closed
        let cast = try #require(optional as? NSError)
        #expect(cast.localizedDescription == "Socket closed by remote peer")
        #expect(((cast as any Error) as? GCDAsyncSocketError)?.code == .closedError)
        let (byCast, byCode, byNSError) = Spellings.isClosed(closed)
        #expect(byCast && byCode && byNSError)
    }

    @Test func anErrorOfAnotherDomainIsNotOfThisType() {
        let other: any Error = NSError(domain: NSPOSIXErrorDomain, code: 7)
        #expect(other as? GCDAsyncSocketError == nil && other as? GCDAsyncUdpSocketError == nil)
        #expect(closed as? GCDAsyncUdpSocketError == nil)
        let unknown: any Error = NSError(domain: GCDAsyncSocketErrorDomain, code: 99)
        #expect(unknown as? GCDAsyncSocketError == nil)
    }

    @Test func errorsCanBeCaughtByTheirCode() throws {
        do {
            throw closed
        } catch GCDAsyncSocketError.readTimeoutError {
            Issue.record("it is not a timeout")
        } catch GCDAsyncSocketError.closedError {
            return
        }
    }

    @Test func anErrorIsThrownWithACodeAndUserInfo() {
        let error = #expect(throws: GCDAsyncUdpSocketError.self) { try Spellings.refuse() }
        #expect(error?.code == .badParamError && error?.localizedDescription == "the address is wrong")
    }

    @Test func theErrorCodesHaveTheValuesOfGCDAsyncSocket() {
        let stream: [GCDAsyncSocketError.Code] = [
            .noError, .badConfigError, .badParamError, .connectTimeoutError, .readTimeoutError, .writeTimeoutError,
            .readMaxedOutError, .closedError, .otherError,
        ]
        #expect(stream.map(\.rawValue) == Array(0...8))
        let named = [
            GCDAsyncSocketError.noError, GCDAsyncSocketError.badConfigError, GCDAsyncSocketError.badParamError,
            GCDAsyncSocketError.connectTimeoutError, GCDAsyncSocketError.readTimeoutError,
            GCDAsyncSocketError.writeTimeoutError, GCDAsyncSocketError.readMaxedOutError, GCDAsyncSocketError.closedError,
            GCDAsyncSocketError.otherError,
        ]
        #expect(named == stream)
        let datagram: [GCDAsyncUdpSocketError.Code] = [
            .noError, .badConfigError, .badParamError, .sendTimeoutError, .closedError, .otherError,
        ]
        #expect(datagram.map(\.rawValue) == Array(0...5))
    }
}
