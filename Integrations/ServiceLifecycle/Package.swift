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
    name: "AsyncSocketsServiceLifecycle",
    products: [
        .library(name: "AsyncSocketsServiceLifecycle", targets: ["AsyncSocketsServiceLifecycle"])
    ],
    dependencies: [
        .package(name: "AsyncSockets", path: "../.."),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.6.0"),
    ],
    targets: [
        .target(
            name: "AsyncSocketsServiceLifecycle",
            dependencies: [
                .product(name: "AsyncSockets", package: "AsyncSockets"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            swiftSettings: strict
        ),
        .testTarget(
            name: "AsyncSocketsServiceLifecycleTests",
            dependencies: [
                "AsyncSocketsServiceLifecycle",
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "ServiceLifecycleTestKit", package: "swift-service-lifecycle"),
            ],
            swiftSettings: strict
        ),
    ]
)
