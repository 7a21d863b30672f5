// The names match the Apple API that existing programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

public import Foundation

/// The name of CocoaAsyncSocket's exceptions. This library traps instead of raising them.
public let GCDAsyncUdpSocketException = "GCDAsyncUdpSocketException"
/// The label of CocoaAsyncSocket's socket queues.
public let GCDAsyncUdpSocketQueueName = "GCDAsyncUdpSocket"
/// The name of CocoaAsyncSocket's thread for Core Foundation streams.
public let GCDAsyncUdpSocketThreadName = "GCDAsyncUdpSocket-CFStream"

/// A filter for received datagrams.
///
/// The arguments are the bytes, the sender's address, and a pointer for storing an object for the delegate.
/// Returning false drops the datagram.
public typealias GCDAsyncUdpSocketReceiveFilterBlock = (Data, Data, AutoreleasingUnsafeMutablePointer<AnyObject?>) -> Bool

/// A filter for outgoing datagrams.
///
/// The arguments are the bytes, the destination and the tag. Returning false drops the datagram, which is
/// reported as sent.
public typealias GCDAsyncUdpSocketSendFilterBlock = (Data, Data, Int) -> Bool
