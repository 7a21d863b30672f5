import Glibc

// The functions that libFuzzer calls. Only the program of `Scripts/fuzz` contains this file.

private nonisolated(unsafe) var target: FuzzTarget?

@_cdecl("LLVMFuzzerInitialize")
func initialize(_: UnsafeMutablePointer<CInt>, _: UnsafeMutableRawPointer) -> CInt {
    let name = getenv("FUZZ_TARGET").map { String(cString: $0) } ?? ""
    target = FuzzTarget.named(name)
    if target == nil {
        print("there is no target named \"\(name)\": \(FuzzTarget.all.map(\.name).joined(separator: " "))")
        exit(2)
    }
    return 0
}

@_cdecl("LLVMFuzzerTestOneInput")
func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard let target, count <= target.maximumLength else { return -1 }
    do {
        try target.run(FuzzInput(Array(UnsafeBufferPointer(start: start, count: count))))
    } catch {
        let message = "\(target.name): \(error)\n"
        write(STDERR_FILENO, message, message.utf8.count)
        abort()
    }
    return 0
}
