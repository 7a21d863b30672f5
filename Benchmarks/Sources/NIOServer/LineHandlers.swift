internal import NIOCore
internal import NIOSSL

/// Echoes everything, and flushes when a read is complete.
final class EchoHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        context.write(data, promise: nil)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        context.flush()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}

/// Splits bytes into lines without searching any byte twice.
struct LineDecoder: ByteToMessageDecoder {
    typealias InboundOut = ByteBuffer
    private var searched = 0

    mutating func decode(context: ChannelHandlerContext, buffer: inout ByteBuffer) throws -> DecodingState {
        let view = buffer.readableBytesView.dropFirst(searched)
        guard let end = view.firstIndex(of: 10) else {
            searched = buffer.readableBytes
            return .needMoreData
        }
        searched = 0
        guard let line = buffer.readSlice(length: end - buffer.readerIndex + 1) else { return .needMoreData }
        context.fireChannelRead(Self.wrapInboundOut(line))
        return .continue
    }
}

/// Replies to each line with its length.
final class CountHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var answer = context.channel.allocator.buffer(capacity: 8)
        answer.writeInteger(UInt64(Self.unwrapInboundIn(data).readableBytes), endianness: .little)
        context.write(Self.wrapOutboundOut(answer), promise: nil)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        context.flush()
    }
}

/// Replies to one line in plaintext, then inserts TLS before the following handlers.
final class UpgradeHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let context: NIOSSLContext
    private var command = ByteBuffer()

    init(context: NIOSSLContext) {
        self.context = context
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = Self.unwrapInboundIn(data)
        command.writeBuffer(&bytes)
        guard command.readableBytesView.last == 10 else { return }
        context.writeAndFlush(Self.wrapOutboundOut(ByteBuffer(string: "220 go ahead\r\n")), promise: nil)
        do {
            let pipeline = context.pipeline.syncOperations
            try pipeline.addHandler(NIOSSLServerHandler(context: self.context), position: .first)
            pipeline.removeHandler(context: context, promise: nil)
        } catch {
            context.close(promise: nil)
        }
    }
}
