import Glibc

// The functions that libFuzzer calls. Only the program of `Scripts/fuzz` contains this file.

private nonisolated(unsafe) var target: FuzzTarget?

private typealias Arguments = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>

/// Chooses the target by its name in the environment, and appends the maximum length of its inputs to the
/// options of libFuzzer.
@_cdecl("LLVMFuzzerInitialize")
func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeMutableRawPointer) -> CInt {
    let name = getenv("FUZZ_TARGET").map { String(cString: $0) } ?? ""
    target = FuzzTarget.named(name)
    guard let target else {
        fail("there is no target named \"\(name)\": \(FuzzTarget.all.map(\.name).joined(separator: " "))")
    }
    let list = arguments.assumingMemoryBound(to: Arguments.self)
    let extended = Arguments.allocate(capacity: Int(count.pointee) + 2)
    extended.update(from: list.pointee, count: Int(count.pointee))
    extended[Int(count.pointee)] = strdup("-max_len=\(target.maximumLength)")
    extended[Int(count.pointee) + 1] = nil
    list.pointee = extended
    count.pointee += 1
    return 0
}

private func fail(_ message: String) -> Never {
    write(STDERR_FILENO, message + "\n", message.utf8.count + 1)
    abort()
}

@_cdecl("LLVMFuzzerTestOneInput")
func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard let target, count <= target.maximumLength else { return -1 }
    do {
        try target.run(FuzzInput(Array(UnsafeBufferPointer(start: start, count: count))))
    } catch {
        fail("\(target.name): \(error)")
    }
    return 0
}
