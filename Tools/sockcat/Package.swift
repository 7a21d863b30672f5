// swift-tools-version: 6.2

import PackageDescription

let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .treatAllWarnings(as: .error),
]

let package = Package(
    name: "sockcat",
    products: [
        .executable(name: "sockcat", targets: ["sockcat"])
    ],
    dependencies: [
        .package(name: "AsyncSockets", path: "../.."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.5.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
    ],
    targets: [
        .executableTarget(
            name: "sockcat",
            dependencies: [
                "SockcatCommands",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: strict),
        .systemLibrary(name: "CResolver"),
        .target(
            name: "SockcatCommands",
            dependencies: [
                "CResolver",
                .product(name: "AsyncSockets", package: "AsyncSockets"),
                .product(name: "AsyncSocketsTesting", package: "AsyncSockets"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict),
        .testTarget(
            name: "SockcatTests",
            dependencies: [
                "sockcat", "SockcatCommands",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "AsyncSockets", package: "AsyncSockets"),
                .product(name: "AsyncSocketsTesting", package: "AsyncSockets"),
            ],
            swiftSettings: strict),
    ]
)
