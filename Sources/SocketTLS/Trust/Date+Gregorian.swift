internal import FoundationEssentials

extension Date {
    /// The date in UTC in the format of ISO 8601, such as "2026-11-27T18:01:22Z".
    ///
    /// Years before 1582 are in the Gregorian calendar too, as ISO 8601 and X.509 require.
    /// `Date.ISO8601Format()` uses the Julian calendar for them.
    var gregorianText: String {
        let seconds = Int(timeIntervalSince1970.rounded(.down))
        let second = ((seconds % 86_400) + 86_400) % 86_400
        let (year, month, day) = Self.gregorianDay((seconds - second) / 86_400)
        let date = "\(Self.padded(year, 4))-\(Self.padded(month, 2))-\(Self.padded(day, 2))"
        let time = [second / 3600, second / 60 % 60, second % 60].map { Self.padded($0, 2) }.joined(separator: ":")
        return "\(date)T\(time)Z"
    }

    /// Returns the date of a day that is counted from 1970-01-01. Internally, years start on March 1, so that
    /// a leap day is the last day of its year.
    private static func gregorianDay(_ number: Int) -> (year: Int, month: Int, day: Int) {
        let days = number + 719_468  // since 0000-03-01
        let era = (days >= 0 ? days : days - 146_096) / 146_097  // 400 years
        let dayOfEra = days - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let month = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * month + 2) / 5 + 1
        return (yearOfEra + era * 400 + (month >= 10 ? 1 : 0), month < 10 ? month + 3 : month - 9, day)
    }

    private static func padded(_ number: Int, _ digits: Int) -> String {
        let text = "\(abs(number))"
        return (number < 0 ? "-" : "") + String(repeating: "0", count: max(0, digits - text.count)) + text
    }
}
