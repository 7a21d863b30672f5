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
    name: "soak",
    dependencies: [.package(name: "AsyncSockets", path: "../..")],
    targets: [
        .executableTarget(
            name: "soak", dependencies: [.product(name: "AsyncSockets", package: "AsyncSockets")], swiftSettings: strict)
    ]
)
