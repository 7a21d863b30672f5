import AsyncSocketsTesting
import CocoaAsyncSocket
import CocoaClients
import Foundation
import SocketTestSupport
import SocketTestTraits
import Testing

/// Third-party peers: `openssl s_client` and Python's TLS.
@Suite(.timeLimit(.patient)) struct OtherProgramsTests {
    private let folder: URL
    private let files: (certificate: String, key: String)
    private let root: String
    private let archive: Data

    init() throws {
        folder = FileManager.default.temporaryDirectory.appendingPathComponent("cocoa-" + UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let issued = try TestCertificates.authority.issue(.server(names: ["localhost"]))
        files = try issued.write(to: folder.path)
        root = try TestCertificates.authority.writeRoot(to: folder.path)
        archive = try TestIdentity.archive(issued)
    }

    private func start(_ program: String, _ arguments: [String], input: String) throws -> (Process, output: FileHandle) {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = [program] + arguments
        let (standardInput, standardOutput) = (Pipe(), Pipe())
        process.standardInput = standardInput
        process.standardOutput = standardOutput
        process.standardError = FileHandle.nullDevice
        try process.run()
        try standardInput.fileHandleForWriting.write(contentsOf: Data(input.utf8))
        try standardInput.fileHandleForWriting.close()
        return (process, standardOutput.fileHandleForReading)
    }

    @Test func aServerWithAPKCS12IdentityServesOpenSSL() async throws {
        let identity = try #require(Spellings.identity(pkcs12: archive, passphrase: TestIdentity.passphrase).identity)
        let diary = Diary()
        diary.reaction = { line, socket in
            if line == "accepted" {
                socket.startTLS([
                    kCFStreamSSLIsServer as String: true as NSObject, kCFStreamSSLCertificates as String: [identity] as CFArray,
                ])
                socket.readData(to: GCDAsyncSocket.lfData(), withTimeout: -1, tag: 1)
            } else if line.hasPrefix("read 1") {
                socket.write(Data("HELLO\n".utf8), withTimeout: -1, tag: 2)
                socket.disconnectAfterWriting()
            }
        }
        let listener = makeSocket(diary)
        try listener.accept(onInterface: "127.0.0.1", port: 0)
        let (process, output) = try start(
            "openssl",
            [
                "s_client", "-quiet", "-connect", "127.0.0.1:\(listener.localPort)", "-CAfile", root, "-servername", "localhost",
                "-verify_hostname", "localhost", "-verify_return_error",
            ], input: "hello\n")
        try await eventually("openssl has ended") { !process.isRunning }
        #expect(process.terminationStatus == 0)
        #expect(try output.readToEnd() == Data("HELLO\n".utf8) && diary.has("read 1: hello\n"))
        try FileManager.default.removeItem(at: folder)
    }

    @Test func aClientThatPinsACertificateSpeaksToPython() async throws {
        let script = """
            import socket, ssl, sys
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(sys.argv[1], sys.argv[2])
            listener = socket.create_server(("127.0.0.1", 0))
            print(listener.getsockname()[1], flush=True)
            plain, _ = listener.accept()
            plain.settimeout(300)
            assert plain.recv(100) == b"STARTTLS\\r\\n"
            plain.sendall(b"220 go ahead\\r\\n")
            secure = context.wrap_socket(plain, server_side=True)
            secure.sendall(secure.recv(100).upper())
            secure.unwrap()
            """
        let (process, output) = try start("python3", ["-c", script, files.certificate, files.key], input: "")
        let port = try #require(UInt16(String(decoding: output.availableData, as: UTF8.self).prefix { $0.isNumber }))
        let diary = Diary()
        let (root, pinned) = (try TestIdentity.root, try pinnedCertificate())
        diary.verdict = { trust in
            SecTrustSetAnchorCertificates(trust, [root] as CFArray) == errSecSuccess && Spellings.isPinned(trust, to: pinned)
        }
        let socket = makeSocket(diary)
        try socket.connect(toHost: "localhost", onPort: port)
        socket.write(Data("STARTTLS\r\n".utf8), withTimeout: -1, tag: 1)
        socket.readData(to: GCDAsyncSocket.crlfData(), withTimeout: -1, tag: 1)
        socket.startTLS([GCDAsyncSocketManuallyEvaluateTrust: true as NSObject])
        socket.write(Data("secret".utf8), withTimeout: -1, tag: 2)
        socket.readData(toLength: 6, withTimeout: -1, tag: 2)
        socket.readData(withTimeout: -1, tag: 3)
        #expect(Spellings.isClosed(try await diary.end()).byCast)
        #expect(
            diary.lines == [
                "connected to 127.0.0.1", "wrote 1", "read 1: 220 go ahead\r\n", "asked", "secure", "wrote 2", "read 2: SECRET",
                "disconnected",
            ])
        try await eventually("python has ended") { !process.isRunning }
        #expect(process.terminationStatus == 0)
        try FileManager.default.removeItem(at: folder)
    }

    private func pinnedCertificate() throws -> Data {
        let text = try String(contentsOfFile: files.certificate, encoding: .utf8)
        let first = text.components(separatedBy: "-----END").first ?? ""
        return SecCertificateCopyData(try TestIdentity.certificate(pem: first)) as Data
    }
}
