internal import Glibc

/// A thread of its own, for calls that block.
enum DetachedThread {
    /// Runs the closure on a new thread.
    ///
    /// - Throws: A failure if the process may not have more threads (pthread_create(3)).
    static func start(_ body: @escaping @Sendable () -> Void) throws {
        let start = Unmanaged.passRetained(Start(body))
        var thread = pthread_t()
        let status = pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                Unmanaged<Start>.fromOpaque(argument).takeRetainedValue().body()
                return nil
            }, start.toOpaque())
        guard status == 0 else {
            start.release()
            throw Failure("cannot start a thread: \(ErrorText.of(status))")
        }
        pthread_detach(thread)
    }

    private final class Start: Sendable {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
}
