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
        .systemLibrary(name: "CMalloc"),
        .executableTarget(
            name: "soak", dependencies: ["CMalloc", .product(name: "AsyncSockets", package: "AsyncSockets")],
            swiftSettings: strict),
    ]
)
