// swift-tools-version: 6.2

import PackageDescription

let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .treatAllWarnings(as: .error),
]

/// Tests of a release build are about the library's optimized code. Their own takes minutes to optimize.
let tests: [SwiftSetting] = strict + [.unsafeFlags(["-Onone"], .when(configuration: .release))]

let package = Package(
    name: "AsyncSockets",
    products: [
        .library(name: "AsyncSockets", targets: ["AsyncSockets"]),
        .library(name: "AsyncSocketsTesting", targets: ["AsyncSocketsTesting"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-log", from: "1.6.0")
    ],
    targets: [
        .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(name: "CLinux"),
        .target(name: "SocketBuffers", dependencies: ["CLinux"], swiftSettings: strict),
        .target(name: "SocketTLS", dependencies: ["COpenSSL", "SocketBuffers"], swiftSettings: strict),
        .target(
            name: "SocketCore",
            dependencies: ["CLinux", "SocketBuffers", .product(name: "Logging", package: "swift-log")],
            swiftSettings: strict
        ),
        .target(
            name: "AsyncSockets",
            dependencies: [
                "SocketBuffers", "SocketCore", "SocketTLS",
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "AsyncSocketsTesting",
            dependencies: ["AsyncSockets", "SocketTLS", "SocketBuffers", "COpenSSL"],
            swiftSettings: strict
        ),
        .target(
            name: "SocketTestSupport",
            dependencies: ["AsyncSockets", "AsyncSocketsTesting", "SocketBuffers", "SocketCore"],
            path: "Tests/SocketTestSupport",
            swiftSettings: tests
        ),
        .executableTarget(
            name: "EngineProbe",
            dependencies: [
                "AsyncSockets", "AsyncSocketsTesting", "COpenSSL", "SocketBuffers", "SocketCore", "SocketTLS",
                "SocketTestSupport",
            ],
            path: "Tests/EngineProbe",
            swiftSettings: strict
        ),
        .executableTarget(
            name: "TopLevelCalls", dependencies: ["AsyncSockets"], path: "Tests/TopLevelCalls", swiftSettings: strict),
        .testTarget(name: "SocketBuffersTests", dependencies: ["SocketBuffers"], swiftSettings: tests),
        .testTarget(
            name: "SocketCoreTests", dependencies: ["AsyncSocketsTesting", "SocketCore", "SocketBuffers", "SocketTestSupport"],
            swiftSettings: tests),
        .testTarget(
            name: "AsyncSocketsTests",
            dependencies: [
                "AsyncSockets", "AsyncSocketsTesting", "CLinux", "EngineProbe", "SocketBuffers", "SocketCore",
                "SocketTLS", "SocketTestSupport",
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: tests
        ),
        .testTarget(
            name: "InteropTests",
            dependencies: ["AsyncSockets", "AsyncSocketsTesting", "SocketBuffers", "SocketTestSupport"],
            swiftSettings: tests
        ),
        .testTarget(
            name: "SocketTLSTests",
            dependencies: ["SocketTLS", "SocketBuffers", "COpenSSL", "AsyncSockets", "AsyncSocketsTesting", "SocketTestSupport"],
            swiftSettings: tests),
        .testTarget(
            name: "AsyncSocketsTestingTests", dependencies: ["AsyncSocketsTesting", "SocketTLS", "SocketTestSupport"],
            swiftSettings: tests),
    ]
)
