package import FoundationEssentials
internal import SocketBuffers
package import SocketCore
package import SocketTLS

// Operations that answer a waiter instead of the delegate, for tasks. Each answers exactly once, also when
// the socket is not in use.
extension AsyncSocket {
    package func read(
        _ goal: ReadPacket.Goal, maxLength: ByteLimit = AsyncSocket.defaultMaxLength, timeout: TimeInterval = -1,
        for waiter: any OperationWaiter<Data>
    ) {
        guard let connection else { return waiter.complete(.failure(Self.notInUse("read"))) }
        connection.read(
            ReadPacket(goal: goal, maxLength: maxLength.count, timeout: timeout, completion: .waiter(waiter)))
    }

    package func write(_ data: Data, timeout: TimeInterval = -1, for waiter: any OperationWaiter<Void>) {
        guard let connection else { return waiter.complete(.failure(Self.notInUse("write"))) }
        connection.write(WritePacket(data: data, timeout: timeout, completion: .waiter(waiter)))
    }

    /// A failure that `startTLS(settings:)` throws is the waiter's answer here.
    package func startTLS(settings: TLSSettings, for waiter: any OperationWaiter<TLSSession?>) {
        do throws(AsyncSocketError) {
            _ = try startTLS(settings: settings, waiter: waiter)
        } catch {
            waiter.complete(.failure(error))
        }
    }

    /// Answers an operation with `CancellationError`. A read, or a write that has not begun, is removed; what
    /// the read had collected stays for the next one. A write that has begun goes on. A wait for the
    /// connection or for TLS closes the connection.
    package func cancel(_ waiter: any AnyObject & Sendable) {
        connection?.post(.cancel(waiter))
    }

    private static func notInUse(_ operation: String) -> AsyncSocketError {
        .badConfiguration(operation, "the socket is not in use: connect it first")
    }
}
