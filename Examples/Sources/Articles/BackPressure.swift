// Article: ahead
import AsyncSockets

/// Sends the numbers from 1 to `count`, one per line.
func sendNumbers(upTo count: Int, on socket: AsyncSocket) async throws {
    socket.writeHighWaterMark = 256 * 1024
    for number in 1...count { try await socket.write("\(number)\n") }
}
// Article: end

// Article: files
/// Sends a line with the file's length, then the file.
func sendFile(_ path: String, ofLength count: Int, on socket: AsyncSocket) async throws {
    try await socket.writeLine("\(count)")
    try await socket.write(contentsOfFile: path, length: count) { print("sent \($0)") }
}

struct BadLength: Error {}

/// Receives a file of up to 1 GiB.
func receiveFile(_ path: String, on socket: AsyncSocket) async throws {
    guard let line = try await socket.readLine(), let count = Int(line), (0...1 << 30).contains(count) else { throw BadLength() }
    try await socket.readToFile(path, exactly: count) { print("received \($0)") }
}
// Article: end

// Article: forward
/// Forwards bytes, and then the end of the stream. A write returns once the kernel has accepted the
/// bytes, so this never reads faster than the other side does. It fails if the other side accepts nothing
/// for a minute.
func forward(from source: AsyncSocket, to destination: AsyncSocket) async throws {
    for try await bytes in source.chunks { try await destination.write(bytes, timeout: .seconds(60)) }
    destination.closeWriteStream()
}
// Article: end
