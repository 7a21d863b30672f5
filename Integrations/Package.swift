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

/// A product of swift-metrics, which is resolved and built only with the trait.
func metrics(_ product: String) -> Target.Dependency {
    .product(name: product, package: "swift-metrics", condition: .when(traits: ["Metrics"]))
}

/// A product of swift-service-lifecycle, which is resolved and built only with the trait.
func lifecycle(_ product: String) -> Target.Dependency {
    .product(name: product, package: "swift-service-lifecycle", condition: .when(traits: ["ServiceLifecycle"]))
}

let package = Package(
    name: "AsyncSocketsIntegrations",
    products: [
        .library(name: "AsyncSocketsMetrics", targets: ["AsyncSocketsMetrics"]),
        .library(name: "AsyncSocketsServiceLifecycle", targets: ["AsyncSocketsServiceLifecycle"]),
    ],
    traits: [
        .trait(name: "Metrics", description: "AsyncSocketsMetrics, with swift-metrics"),
        .trait(name: "ServiceLifecycle", description: "AsyncSocketsServiceLifecycle, with swift-service-lifecycle"),
    ],
    dependencies: [
        .package(name: "AsyncSockets", path: ".."),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.5.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.6.0"),
    ],
    targets: [
        .target(name: "AsyncSocketsMetrics", dependencies: [sockets, metrics("CoreMetrics")], swiftSettings: strict),
        .testTarget(
            name: "AsyncSocketsMetricsTests",
            dependencies: [
                "AsyncSocketsMetrics", sockets, .product(name: "AsyncSocketsTesting", package: "AsyncSockets"),
                metrics("CoreMetrics"), metrics("MetricsTestKit"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "AsyncSocketsServiceLifecycle", dependencies: [sockets, lifecycle("ServiceLifecycle")],
            swiftSettings: strict
        ),
        .testTarget(
            name: "AsyncSocketsServiceLifecycleTests",
            dependencies: [
                "AsyncSocketsServiceLifecycle", sockets, lifecycle("ServiceLifecycle"), lifecycle("ServiceLifecycleTestKit"),
            ],
            swiftSettings: strict
        ),
    ]
)
