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
    name: "AsyncSocketsMetrics",
    products: [
        .library(name: "AsyncSocketsMetrics", targets: ["AsyncSocketsMetrics"])
    ],
    dependencies: [
        .package(name: "AsyncSockets", path: "../.."),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.5.0"),
    ],
    targets: [
        .target(
            name: "AsyncSocketsMetrics",
            dependencies: [
                .product(name: "AsyncSockets", package: "AsyncSockets"),
                .product(name: "CoreMetrics", package: "swift-metrics"),
            ],
            swiftSettings: strict
        ),
        .testTarget(
            name: "AsyncSocketsMetricsTests",
            dependencies: [
                "AsyncSocketsMetrics",
                .product(name: "AsyncSockets", package: "AsyncSockets"),
                .product(name: "AsyncSocketsTesting", package: "AsyncSockets"),
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "MetricsTestKit", package: "swift-metrics"),
            ],
            swiftSettings: strict
        ),
    ]
)
