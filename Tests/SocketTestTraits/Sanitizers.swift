import Glibc
package import Testing

extension Trait where Self == ConditionTrait {
    /// Skips a test in a build with a sanitizer, whose runtime replaces the same functions as the test.
    package static var noSanitizer: Self {
        .enabled(if: dlsym(nil, "__tsan_init") == nil && dlsym(nil, "__asan_init") == nil, "this is a build with a sanitizer")
    }
}
