//! Numbers as people read and write them.

use std::ops::RangeInclusive;
use std::str::FromStr;

pub use pagepool_watch::commands::{grouped, ranges};

/// The rate per second of a count, as a whole number.
pub fn per_second(count: u64, seconds: f64) -> String {
    grouped((count as f64 / seconds) as u64)
}

/// Counts in words; those that are 0 are left out.
pub fn without_zeros(counts: &[(&str, u64)]) -> String {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    some.map(|(what, count)| format!("{what} {}", grouped(*count))).collect::<Vec<_>>().join(", ")
}

/// Reads a whole number, or a number with decimals before k, M or G (thousands, millions, billions). `of`
/// says what it counts. An error if it is not in the range.
fn read_count(text: &str, of: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let (least, most) = (range.start(), range.end());
    let number = parse_count(text).ok_or_else(|| match *most >= 1_000_000_000 {
        true => format!("'{text}' is not a number of {of}, e.g. 1000 (1k, 1M and 0.5G work, too)"),
        false => format!("'{text}' is not a number of {of}, {} to {}", grouped(*least), grouped(*most)),
    })?;
    match range.contains(&number) {
        true => Ok(number),
        false if *most == u64::MAX => Err(format!("the number of {of} is at least {}", grouped(*least))),
        false => Err(format!("the number of {of} is {} to {}", grouped(*least), grouped(*most))),
    }
}

/// A parser for an option: reads as [`read_count`] does, into a type that holds the whole range.
pub fn count_of<T: TryFrom<u64>>(
    of: &'static str,
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| {
        let number = read_count(text, of, range.clone())?;
        T::try_from(number).map_err(|_| format!("{number} is too large"))
    }
}

/// A parser for an option: reads a value in a range, or returns the message.
pub fn in_range<T: FromStr + PartialOrd + Clone + Send + Sync>(
    range: RangeInclusive<T>,
    message: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| text.parse().ok().filter(|value| range.contains(value)).ok_or_else(|| message.to_owned())
}

fn parse_count(text: &str) -> Option<u64> {
    let (number, places) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 3),
        (at, 'M') => (&text[..at], 6),
        (at, 'G') => (&text[..at], 9),
        _ => (text, 0),
    };
    let (before, behind) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !before.is_empty() && digits(before) && digits(behind) && !number.ends_with('.');
    (is_number && behind.len() <= places).then(|| format!("{before}{behind:0<places$}").parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_millions_and_billions_are_read_and_nothing_else() {
        let read = |text| read_count(text, "packets a second", 1..=3_000_000_000);
        for (text, number) in [("1", 1), ("1000", 1000), ("1k", 1000), ("1.5K", 1500), ("1M", 1_000_000)] {
            assert_eq!(read(text), Ok(number), "{text}");
        }
        assert_eq!((read("2.5G"), read("0.001k")), (Ok(2_500_000_000), Ok(1)));
        let long = "9".repeat(30);
        for bad in ["", "k", "x", "-1", "+1", "1.5", "1.", ".5k", "1kk", "1.2345k", "1 k", "1e3", &long] {
            let why = "is not a number of packets a second, e.g. 1000 (1k, 1M and 0.5G work, too)";
            assert_eq!(read(bad), Err(format!("'{bad}' {why}")));
        }
        assert_eq!(read("4G"), Err("the number of packets a second is 1 to 3,000,000,000".into()));
        let threads = count_of::<u8>("threads", 1..=16);
        assert_eq!((threads("16"), threads("0.012k")), (Ok(16), Ok(12)));
        assert_eq!(threads("1x"), Err("'1x' is not a number of threads, 1 to 16".into()));
        assert_eq!(threads("1k"), Err("the number of threads is 1 to 16".into()));
        assert_eq!(
            read_count("0", "packets", 1..=u64::MAX),
            Err("the number of packets is at least 1".into())
        );
    }
}
