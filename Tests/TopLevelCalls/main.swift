// Calls each asynchronous method of the library at the top level of a program. If Swift prefers a synchronous
// method of the same name here, it warns about the unnecessary `await`, and warnings are errors. The program
// is compiled but never run. `Scripts/checks/style` checks that no call is missing.

import AsyncSockets
import Foundation

let socket = AsyncSocket()
let bytes: [UInt8] = [1, 2, 3]
let tls = TLSSettings.client(serverName: "example.org")

let address = try await SocketEndpoint.lookUp(host: "127.0.0.1", port: 7)[0]
try await socket.connect(to: "example.org", port: 7)
try await socket.connect(to: address)
try await socket.connect(toPath: "/run/example")
try await AsyncSocket.withConnection(to: "example.org", port: 7) { _ in }
try await AsyncSocket.withConnection(to: address) { _ in }
try await AsyncSocket.withConnection(toPath: "/run/example") { _ in }
for try await _ in AsyncSocket.reconnecting(to: "example.org", port: 7) { break }
await withDeadline(.seconds(1)) {}

_ = try await socket.read()
_ = try await socket.read(exactly: 3)
_ = try await socket.read(until: Data(bytes))
_ = try await socket.peek(exactly: 3)
_ = try await socket.readLine()
_ = try await socket.readToEnd()
try await socket.readToFile("/tmp/example", exactly: 3)
_ = try await socket.readToFile("/tmp/example", maxLength: 3)
_ = try await socket.readFrame(LengthPrefixed<UInt8>())
_ = try await socket.withNextBytes { $0.byteCount }

try await socket.write(Data(bytes))
try await socket.write(bytes)
try await socket.write("text")
try await socket.writeLine("text")
try await socket.write(bytes.span.bytes)
try await socket.write(ProxyHeader(source: address, destination: address))
try await socket.write(Data(bytes), as: LengthPrefixed<UInt8>())
try await socket.write(contentsOfFile: "/etc/hostname")

try await socket.relay(with: AsyncSocket())

_ = try await socket.startTLS(as: .imap, settings: tls)
try await socket.acceptStartTLS(as: .imap(greeting: "ready"), settings: .server(identity: TLSIdentity(pem: "")))
try await socket.startTLS(settings: tls)
let probe = TLSProbe(version: 0x0303, cipherSuites: [0x1301], serverName: nil)
_ = try await probe.reply(over: socket)
_ = try await probe.reply(over: socket, after: .imap)
_ = try await socket.requestClientCertificate()
try await socket.close()

let udp = AsyncUDPSocket()
try await udp.connect(to: "example.org", port: 53)
try await udp.connect(to: address)
try await udp.send(Data(bytes))
try await udp.send(Data(bytes), to: address)
try await udp.send(Data(bytes), to: "example.org", port: 53)
let datagram = try await udp.receive()
try await udp.send(Data(bytes), inReplyTo: datagram)
_ = try await udp.exchange(Data(bytes), with: address) { _ in true }
_ = try await udp.exchange(Data(bytes)) { _ in true }
_ = try await udp.startDTLS(settings: tls)
try await udp.close()
for try await _ in udp.datagrams { break }
try await AsyncUDPSocket.withConnection(to: "example.org", port: 53) { _ in }
try await AsyncUDPSocket.withSocket(boundTo: 53) { _ in }

let listener = try SocketListener(port: 7)
try await listener.run { _ in }
try await listener.run(untilSignals: [SIGTERM]) { _ in }
try await listener.reloadTLS(from: []) { try .server(identity: TLSIdentity(pem: "")) }
_ = try await listener.untilClosing { 7 }
await listener.close()

let peers = try DatagramListener(port: 7)
try await peers.run { _ in }
try await peers.run(untilSignals: [SIGTERM]) { _ in }
try await peers.reloadTLS(from: []) { try .server(identity: TLSIdentity(pem: "")) }
_ = try await peers.untilClosing { 7 }
await peers.close()

let restart = try await HotRestart(path: "/run/example")
try await restart.takeOver(["example": listener])
try await restart.untilReplaced()
try await ServiceManager.current?.keepAlive()
