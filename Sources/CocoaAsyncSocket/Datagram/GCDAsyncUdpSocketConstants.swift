// The names are the ones that programs use.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

public import Foundation

/// The name of exceptions of the original, which are traps here.
public let GCDAsyncUdpSocketException = "GCDAsyncUdpSocketException"
/// The label of the original's socket queues.
public let GCDAsyncUdpSocketQueueName = "GCDAsyncUdpSocket"
/// The name of the original's thread of Core Foundation streams.
public let GCDAsyncUdpSocketThreadName = "GCDAsyncUdpSocket-CFStream"

/// A filter of datagrams that have arrived: the bytes, the sender's address, and where to put an object for
/// the delegate. False drops the datagram.
public typealias GCDAsyncUdpSocketReceiveFilterBlock = (Data, Data, AutoreleasingUnsafeMutablePointer<AnyObject?>) -> Bool

/// A filter of datagrams that are about to leave: the bytes, the destination, and the tag. False drops the
/// datagram, which counts as sent.
public typealias GCDAsyncUdpSocketSendFilterBlock = (Data, Data, Int) -> Bool
