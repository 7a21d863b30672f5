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
let unoptimized: [SwiftSetting] = [.unsafeFlags(["-Onone"], .when(configuration: .release))]
let tests: [SwiftSetting] = strict + unoptimized

/// A product of swift-metrics, which is fetched and built only with the trait.
func metrics(_ product: String) -> Target.Dependency {
    .product(name: product, package: "swift-metrics", condition: .when(traits: ["Metrics"]))
}

/// A product of swift-service-lifecycle, which is fetched and built only with the trait.
func lifecycle(_ product: String) -> Target.Dependency {
    .product(name: product, package: "swift-service-lifecycle", condition: .when(traits: ["ServiceLifecycle"]))
}

let package = Package(
    name: "AsyncSockets",
    products: [
        .library(name: "AsyncSockets", targets: ["AsyncSockets"]),
        .library(name: "StartTLSProtocols", targets: ["StartTLSProtocols"]),
        .library(name: "AsyncSocketsTesting", targets: ["AsyncSocketsTesting"]),
        .library(name: "CocoaAsyncSocket", targets: ["CocoaAsyncSocket"]),
        .library(name: "Security", targets: ["Security"]),
        .library(name: "AsyncSocketsMetrics", targets: ["AsyncSocketsMetrics"]),
        .library(name: "AsyncSocketsServiceLifecycle", targets: ["AsyncSocketsServiceLifecycle"]),
    ],
    traits: [
        .trait(name: "Metrics", description: "AsyncSocketsMetrics, with swift-metrics"),
        .trait(name: "ServiceLifecycle", description: "AsyncSocketsServiceLifecycle, with swift-service-lifecycle"),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-log", from: "1.6.0"),
        // Fetched only if the trait is enabled, which Scripts/checks/consumer verifies.
        .package(url: "https://github.com/apple/swift-metrics", from: "2.5.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.6.0"),
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
        .target(name: "StartTLSProtocols", swiftSettings: strict),
        .target(
            name: "AsyncSockets",
            dependencies: [
                "SocketBuffers", "SocketCore", "SocketTLS", "StartTLSProtocols",
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "CocoaAsyncSocket",
            dependencies: [
                "AsyncSockets", "SocketBuffers", "SocketCore", "SocketTLS", .product(name: "Logging", package: "swift-log"),
            ],
            // As an Objective-C header: clients in Swift 5 capture a socket in a closure without a warning.
            swiftSettings: Array(strict.dropFirst()) + [.swiftLanguageMode(.v5), .enableUpcomingFeature("StrictConcurrency")]),
        .target(name: "Security", dependencies: ["CocoaAsyncSocket"], swiftSettings: strict),
        .target(
            name: "AsyncSocketsTesting",
            dependencies: ["AsyncSockets", "SocketTLS", "SocketBuffers", "COpenSSL"],
            swiftSettings: strict
        ),
        .target(
            name: "AsyncSocketsMetrics", dependencies: ["AsyncSockets", metrics("CoreMetrics")], swiftSettings: strict),
        .target(
            name: "AsyncSocketsServiceLifecycle", dependencies: ["AsyncSockets", lifecycle("ServiceLifecycle")],
            swiftSettings: strict),
        .target(
            name: "SocketTestSupport",
            dependencies: ["AsyncSockets", "AsyncSocketsTesting", "CSeccomp", "SocketBuffers", "SocketCore"],
            path: "Tests/SocketTestSupport",
            swiftSettings: tests
        ),
        .target(
            name: "SocketTestTraits", dependencies: ["SocketTestSupport"], path: "Tests/SocketTestTraits",
            swiftSettings: tests),
        .systemLibrary(name: "CSeccomp", path: "Tests/CSeccomp"),
        // Written as for Apple platforms, in the language mode of old programs.
        .target(
            name: "CocoaClients", dependencies: ["CocoaAsyncSocket", "Security"], path: "Tests/CocoaClients",
            swiftSettings: unoptimized + [.swiftLanguageMode(.v5), .treatAllWarnings(as: .error)]),
        .executableTarget(
            name: "EngineProbe",
            dependencies: [
                "AsyncSockets", "AsyncSocketsTesting", "CLinux", "COpenSSL", "CSeccomp", "SocketBuffers", "SocketCore",
                "SocketTLS", "SocketTestSupport", .product(name: "Logging", package: "swift-log"),
            ],
            path: "Tests/EngineProbe",
            swiftSettings: strict
        ),
        // The library under a deterministic schedule. Only this program replaces system calls.
        .target(name: "CSimulation", dependencies: ["COpenSSL"], path: "Tests/CSimulation"),
        .executableTarget(
            name: "Simulation",
            dependencies: [
                "AsyncSockets", "AsyncSocketsTesting", "CSimulation", "SocketCore", "SocketTestSupport",
                .product(name: "Logging", package: "swift-log"),
            ],
            path: "Tests/Simulation", swiftSettings: strict + [.unsafeFlags(["-O"])]),
        .executableTarget(
            name: "TopLevelCalls", dependencies: ["AsyncSockets"], path: "Tests/TopLevelCalls", swiftSettings: strict),
        .testTarget(
            name: "SocketBuffersTests", dependencies: ["SocketBuffers", "SocketTestSupport", "SocketTestTraits"],
            swiftSettings: tests),
        .testTarget(
            name: "SocketCoreTests",
            dependencies: ["AsyncSocketsTesting", "SocketCore", "SocketBuffers", "SocketTestSupport", "SocketTestTraits"],
            swiftSettings: tests),
        .testTarget(
            name: "AsyncSocketsTests",
            dependencies: [
                "AsyncSockets", "AsyncSocketsTesting", "CLinux", "EngineProbe", "SocketBuffers", "SocketCore",
                "SocketTLS", "SocketTestSupport", "SocketTestTraits",
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: tests
        ),
        .testTarget(
            name: "CocoaAsyncSocketTests",
            dependencies: [
                "AsyncSockets", "AsyncSocketsTesting", "CocoaAsyncSocket", "CocoaClients", "SocketBuffers", "SocketTLS",
                "SocketTestSupport", "SocketTestTraits",
            ],
            swiftSettings: tests
        ),
        .testTarget(
            name: "InteropTests",
            dependencies: ["AsyncSockets", "AsyncSocketsTesting", "SocketBuffers", "SocketTestSupport", "SocketTestTraits"],
            swiftSettings: tests
        ),
        .testTarget(name: "StartTLSProtocolsTests", dependencies: ["StartTLSProtocols"], swiftSettings: tests),
        .testTarget(
            name: "SocketTLSTests",
            dependencies: [
                "SocketTLS", "SocketBuffers", "COpenSSL", "AsyncSockets", "AsyncSocketsTesting", "SocketTestSupport",
                "SocketTestTraits",
            ],
            swiftSettings: tests),
        .testTarget(
            name: "AsyncSocketsTestingTests",
            dependencies: ["AsyncSocketsTesting", "SocketTLS", "SocketTestSupport", "SocketTestTraits"],
            swiftSettings: tests),
        .testTarget(
            name: "AsyncSocketsMetricsTests",
            dependencies: [
                "AsyncSocketsMetrics", "AsyncSockets", "AsyncSocketsTesting", "SocketTestSupport", "SocketTestTraits",
                metrics("CoreMetrics"), metrics("MetricsTestKit"),
            ],
            swiftSettings: tests),
        .testTarget(
            name: "AsyncSocketsServiceLifecycleTests",
            dependencies: [
                "AsyncSocketsServiceLifecycle", "AsyncSockets", "SocketTestTraits", lifecycle("ServiceLifecycle"),
                lifecycle("ServiceLifecycleTestKit"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: tests),
    ]
)

// Scripts/fuzz builds FuzzTests as a program with libFuzzer's main function. Otherwise, FuzzTests is a test
// target that runs recorded inputs.
let fuzzDependencies: [Target.Dependency] = [
    "AsyncSockets", "AsyncSocketsTesting", "COpenSSL", "SocketBuffers", "SocketCore", "SocketTLS", "StartTLSProtocols",
]
package.targets.append(
    Context.environment["FUZZING"] != nil
        ? .executableTarget(
            name: "FuzzTests", dependencies: fuzzDependencies, path: "Tests/FuzzTests",
            exclude: ["Corpora", "dictionary.txt", "ReplayTests.swift"],
            swiftSettings: strict + [.unsafeFlags(["-parse-as-library"])])
        : .testTarget(
            name: "FuzzTests", dependencies: fuzzDependencies + ["SocketTestTraits"],
            exclude: ["Corpora", "dictionary.txt", "LibFuzzer.swift"],
            swiftSettings: tests))
