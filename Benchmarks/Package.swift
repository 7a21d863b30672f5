// swift-tools-version: 6.2

import PackageDescription

let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .treatAllWarnings(as: .error),
]

let arguments: Target.Dependency = .product(name: "ArgumentParser", package: "swift-argument-parser")

let package = Package(
    name: "Benchmarks",
    dependencies: [
        .package(name: "AsyncSockets", path: ".."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.5.0"),
        .package(url: "https://github.com/apple/swift-nio", exact: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", exact: "2.37.6"),
    ],
    targets: [
        .target(name: "ServerArguments", dependencies: [arguments], swiftSettings: strict),
        .executableTarget(
            name: "server-ours",
            dependencies: ["ServerArguments", arguments, .product(name: "AsyncSockets", package: "AsyncSockets")],
            path: "Sources/OwnServer", swiftSettings: strict
        ),
        .executableTarget(
            name: "server-ours-async",
            dependencies: ["ServerArguments", arguments, .product(name: "AsyncSockets", package: "AsyncSockets")],
            path: "Sources/OwnAsyncServer", swiftSettings: strict
        ),
        .executableTarget(
            name: "server-ours-cocoa",
            dependencies: ["ServerArguments", arguments, .product(name: "CocoaAsyncSocket", package: "AsyncSockets")],
            path: "Sources/OwnCocoaServer", swiftSettings: strict
        ),
        .executableTarget(
            name: "server-nio",
            dependencies: [
                "ServerArguments", arguments,
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            path: "Sources/NIOServer", swiftSettings: strict
        ),
        .executableTarget(name: "bench", dependencies: [arguments], path: "Sources/Bench", swiftSettings: strict),
        .testTarget(name: "BenchTests", dependencies: ["bench"], swiftSettings: strict),
    ]
)
