internal import NIOCore
internal import NIOPosix
internal import ServerArguments

/// A datagram server on SwiftNIO with vector reads, which receive up to 64 datagrams per call.
struct DatagramServer {
    let arguments: ServerArguments

    private static let batch = 64
    private static let size = 2_048

    func run() throws {
        let mode = arguments.mode
        let channel = try DatagramBootstrap(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            .channelOption(.datagramVectorReadMessageCount, value: Self.batch)
            .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: Self.batch * Self.size))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(DatagramHandler(mode)) }
            }
            .bind(host: "127.0.0.1", port: arguments.port).wait()
        arguments.announce(port: channel.localAddress?.port ?? 0)
        try channel.closeFuture.wait()
    }
}

/// Handles each datagram. Flushes the replies when a read is complete.
final class DatagramHandler: ChannelInboundHandler {
    typealias InboundIn = AddressedEnvelope<ByteBuffer>
    typealias OutboundOut = AddressedEnvelope<ByteBuffer>

    private let mode: ServerArguments.Mode
    private var counts: [SocketAddress: UInt64] = [:]
    private let pattern = ByteBuffer(bytes: BulkPattern.bytes(65_507))

    init(_ mode: ServerArguments.Mode) {
        self.mode = mode
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let envelope = Self.unwrapInboundIn(data)
        switch mode {
        case .udpReceive: count(envelope, context)
        case .udpSource: sendBurst(envelope, context)
        default: context.write(data, promise: nil)
        }
    }

    private func count(_ envelope: InboundIn, _ context: ChannelHandlerContext) {
        counts[envelope.remoteAddress, default: 0] += 1
        guard envelope.data.getInteger(at: envelope.data.readerIndex, as: UInt8.self) == 1 else { return }
        var answer = context.channel.allocator.buffer(capacity: 8)
        answer.writeInteger(counts[envelope.remoteAddress] ?? 0, endianness: .little)
        reply(answer, to: envelope, context)
    }

    private func sendBurst(_ envelope: InboundIn, _ context: ChannelHandlerContext) {
        var request = envelope.data
        guard request.readableBytes == 16, let count = request.readInteger(endianness: .little, as: UInt64.self),
            let size = request.readInteger(endianness: .little, as: UInt64.self),
            let bytes = pattern.getSlice(at: 0, length: Int(clamping: size))
        else { return }
        for _ in 0..<count { reply(bytes, to: envelope, context) }
    }

    private func reply(_ bytes: ByteBuffer, to envelope: InboundIn, _ context: ChannelHandlerContext) {
        context.write(Self.wrapOutboundOut(AddressedEnvelope(remoteAddress: envelope.remoteAddress, data: bytes)), promise: nil)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        context.flush()
        context.fireChannelReadComplete()
    }
}
