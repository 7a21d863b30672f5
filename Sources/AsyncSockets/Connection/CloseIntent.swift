/// When a connection shall end, as its user has asked (`kDisconnectAfterReads`, `kDisconnectAfterWrites`).
///
/// From the moment one is set no new read or write is taken (`kForbidReadsWrites`).
struct CloseIntent: OptionSet, Sendable {
    let rawValue: UInt8

    /// Once every queued read is complete.
    static let afterReads = CloseIntent(rawValue: 1 << 0)
    /// Once every queued write is complete.
    static let afterWrites = CloseIntent(rawValue: 1 << 1)

    /// True when what it waits for is done.
    func isMet(readsDone: Bool, writesDone: Bool) -> Bool {
        (!contains(.afterReads) || readsDone) && (!contains(.afterWrites) || writesDone)
    }
}
