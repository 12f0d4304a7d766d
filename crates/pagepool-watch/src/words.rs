//! Texts for people: numbers, times, errors.

use std::time::Duration;

/// A number in groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes for people, in at most six characters.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let unit = (n.max(1).ilog2() / 10) as usize;
    let of = n as f64 / (1_u64 << (10 * unit)) as f64;
    match unit {
        0 => format!("{n} B"),
        _ if of < 10.0 => format!("{of:.2}{}", UNITS[unit]),
        _ if of < 100.0 => format!("{of:.1}{}", UNITS[unit]),
        _ => format!("{of:.0}{}", UNITS[unit]),
    }
}

/// A time in its two largest units.
pub fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// An error and its causes, in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", error_chain(source)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_six_characters_and_times_two_units() {
        let all = [0, 1023, 1024, 10 << 10, 1_048_575, 16 << 20, 3 << 30, u64::MAX].map(bytes);
        assert_eq!(all, ["0 B", "1023 B", "1.00K", "10.0K", "1024K", "16.0M", "3.00G", "16.0E"]);
        let times = [0, 59, 61, 3_661, 90_000].map(|seconds| spoken(Duration::from_secs(seconds)));
        assert_eq!(times, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn digits_stand_in_threes() {
        let written = [0, 999, 1000, 12_345, 1_234_567].map(grouped);
        assert_eq!(written, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }
}
