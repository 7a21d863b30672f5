import Glibc
import Testing

@testable import SocketCore

@Suite struct FailingCallTests {
    @Test func aFailingCallIsGivenUpAfterTwelveFailures() {
        var call = FailingCall()
        let error = SystemError("accept4", errno: EACCES)
        var pauses: [Double] = []
        for number in 1..<FailingCall.failureLimit {
            guard case .pause(let seconds, let isFirst) = call.note(error) else {
                Issue.record("it gives up after \(number) failures")
                return
            }
            #expect(isFirst == (number == 1))
            pauses.append(seconds)
        }
        #expect(pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1, 1, 1])
        guard case .end(let last) = call.note(error) else {
            Issue.record("it retries forever")
            return
        }
        #expect(last.errno == EACCES && last.description == "accept4: permission denied (12 times in a row)")
    }

    @Test func aSuccessForgivesAllFailures() {
        var call = FailingCall()
        let error = SystemError("accept4", errno: EPERM)
        for _ in 0..<3 {
            for _ in 1..<FailingCall.failureLimit { _ = call.note(error) }
            call.succeed()
            #expect(call.error == nil)
        }
        #expect(call.note(error) == .pause(seconds: 0.05, isFirst: true))
        // A different error is logged again.
        #expect(call.note(SystemError("accept4", errno: EACCES)) == .pause(seconds: 0.1, isFirst: true))
    }

    @Test func aShortageIsNeverGivenUp() {
        var call = FailingCall()
        for number in 0..<100 {
            guard case .pause(let seconds, _) = call.note(SystemError("accept4", errno: EMFILE), isShortage: true) else {
                Issue.record("it gives up after \(number) failures")
                return
            }
            #expect(seconds <= 1)
        }
    }

    /// Errors that routers and peers cause do not close the socket, and must not be mistaken for other
    /// errors.
    @Test(arguments: [
        (EAGAIN, DatagramReceiver.Failure.wouldBlock), (ENOBUFS, .exhausted), (ENOMEM, .exhausted),
        (ECONNREFUSED, .ofEarlierDatagram), (EHOSTUNREACH, .ofEarlierDatagram), (ENETUNREACH, .ofEarlierDatagram),
        (ENOPROTOOPT, .ofEarlierDatagram), (EMSGSIZE, .ofEarlierDatagram), (EOPNOTSUPP, .ofEarlierDatagram),
        (EHOSTDOWN, .ofEarlierDatagram), (ENONET, .ofEarlierDatagram), (EPROTO, .ofEarlierDatagram),
        (EBADF, .certain), (ENOTSOCK, .certain), (EINVAL, .certain), (EFAULT, .certain), (ENOTCONN, .certain), (ENOSYS, .certain),
        (EACCES, .denied), (EPERM, .denied), (EIO, .denied), (EDEADLK, .denied),
    ])
    func eachErrorOfReceivingHasItsMeaning(_ number: CInt, _ expected: DatagramReceiver.Failure) {
        #expect(DatagramReceiver.Failure(number) == expected)
    }
}
