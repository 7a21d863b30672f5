// swift-tools-version: 6.2

import PackageDescription

let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .treatAllWarnings(as: .error),
]

let sockets: Target.Dependency = .product(name: "AsyncSockets", package: "AsyncSockets")

/// The CocoaAsyncSocket examples are written in the style from before strict concurrency.
let classic: [SwiftSetting] = [.swiftLanguageMode(.v5), .treatAllWarnings(as: .error)]

func classicProgram(_ name: String, _ folder: String) -> Target {
    .executableTarget(
        name: name, dependencies: [.product(name: "CocoaAsyncSocket", package: "AsyncSockets")],
        path: "CocoaAsyncSocket/\(folder)", swiftSettings: classic)
}

let package = Package(
    name: "Examples",
    dependencies: [
        .package(name: "AsyncSockets", path: ".."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.5.0"),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.0.0"),
    ],
    targets: [
        .executableTarget(
            name: "short-client", dependencies: [sockets], path: "Sources/ShortClient", swiftSettings: strict),
        .executableTarget(
            name: "short-server", dependencies: [sockets], path: "Sources/ShortServer", swiftSettings: strict),
        .executableTarget(
            name: "first-client", dependencies: [sockets], path: "Sources/FirstClient", swiftSettings: strict),
        .executableTarget(
            name: "first-server", dependencies: [sockets], path: "Sources/FirstServer", swiftSettings: strict),
        .executableTarget(
            name: "mail-submission", dependencies: [sockets], path: "Sources/MailSubmission", swiftSettings: strict),
        .executableTarget(
            name: "chat-server", dependencies: [sockets], path: "Sources/ChatServer", swiftSettings: strict),
        .executableTarget(name: "tls-proxy", dependencies: [sockets], path: "Sources/TLSProxy", swiftSettings: strict),
        .executableTarget(
            name: "task-client", dependencies: [sockets], path: "Sources/TaskClient", swiftSettings: strict),
        .executableTarget(
            name: "expiry-checker", dependencies: [sockets], path: "Sources/ExpiryChecker", swiftSettings: strict),
        .executableTarget(
            name: "smtp-client", dependencies: [sockets], path: "Sources/SMTPClient", swiftSettings: strict),
        .executableTarget(
            name: "imap-client", dependencies: [sockets], path: "Sources/IMAPClient", swiftSettings: strict),
        .executableTarget(
            name: "redis-client", dependencies: [sockets, "RedisConnection"], path: "Sources/RedisClient", swiftSettings: strict),
        .executableTarget(
            name: "shared-tickets", dependencies: [sockets, "RedisConnection"], path: "Sources/SharedTickets",
            swiftSettings: strict),
        .executableTarget(
            name: "task-chat-server", dependencies: [sockets], path: "Sources/TaskChatServer", swiftSettings: strict),
        .executableTarget(
            name: "tls-terminator", dependencies: [sockets], path: "Sources/TLSTerminator", swiftSettings: strict),
        .executableTarget(
            name: "name-router", dependencies: [sockets], path: "Sources/NameRouter", swiftSettings: strict),
        .executableTarget(
            name: "http-server", dependencies: [sockets], path: "Sources/HTTPServer", swiftSettings: strict),
        .executableTarget(
            name: "json-frames", dependencies: [sockets], path: "Sources/JSONFrames", swiftSettings: strict),
        .executableTarget(
            name: "reconnecting-client", dependencies: [sockets], path: "Sources/ReconnectingClient", swiftSettings: strict),
        .executableTarget(
            name: "restarting-server", dependencies: [sockets], path: "Sources/RestartingServer", swiftSettings: strict),
        .executableTarget(
            name: "fleet-server", dependencies: [sockets], path: "Sources/FleetServer", swiftSettings: strict),
        .executableTarget(name: "dns-query", dependencies: [sockets], path: "Sources/DNSQuery", swiftSettings: strict),
        .executableTarget(name: "discovery", dependencies: [sockets], path: "Sources/Discovery", swiftSettings: strict),
        .executableTarget(name: "dtls-server", dependencies: [sockets], path: "Sources/DTLSServer", swiftSettings: strict),
        .executableTarget(name: "dtls-client", dependencies: [sockets], path: "Sources/DTLSClient", swiftSettings: strict),
        .executableTarget(
            name: "coap-client", dependencies: [sockets], path: "Sources/CoAPClient", swiftSettings: strict),
        .executableTarget(
            name: "postgres-login", dependencies: [sockets, .product(name: "Crypto", package: "swift-crypto")],
            path: "Sources/PostgresLogin", swiftSettings: strict),
        classicProgram("cocoa-chat-server", "ChatServer"),
        classicProgram("cocoa-chat-client", "ChatClient"),
        classicProgram("cocoa-messenger", "Messenger"),
        classicProgram("cocoa-discovery", "Discovery"),
        classicProgram("cocoa-mail", "Mail"),
        classicProgram("cocoa-pinned-client", "PinnedClient"),
        classicProgram("cocoa-identity-server", "IdentityServer"),
        classicProgram("cocoa-metered-echo", "MeteredEcho"),
        .target(name: "RedisConnection", dependencies: [sockets], swiftSettings: strict),
        .target(name: "Articles", dependencies: [sockets], swiftSettings: strict),
        .testTarget(
            name: "ArticleTests",
            dependencies: [sockets, .product(name: "AsyncSocketsTesting", package: "AsyncSockets")],
            path: "Sources/ArticleTests", swiftSettings: strict
        ),
        .executableTarget(
            name: "starttls-demo",
            dependencies: [
                sockets,
                .product(name: "AsyncSocketsTesting", package: "AsyncSockets"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Sources/StartTLSDemo", swiftSettings: strict
        ),
    ]
)
