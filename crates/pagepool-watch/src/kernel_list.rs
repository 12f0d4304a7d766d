//! Lists of numbers as the kernel writes them: of CPUs, of nodes.

use std::fmt::Display;
use std::ops::Add;

/// Numbers as a list of ranges, as the kernel reads them: `0-2,5`.
pub fn ranges<T: Copy + Display + PartialEq + Add<Output = T> + From<u8>>(numbers: &[T]) -> String {
    let runs = numbers.chunk_by(|one, next| *one + T::from(1) == *next);
    let shown = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    shown.collect::<Vec<_>>().join(",")
}

/// Reads numbers from a list in the kernel's format: `0-1,3`.
pub fn numbers(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(numbers("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(numbers("\n"), [0; 0]);
    }

    #[test]
    fn successive_numbers_are_a_range() {
        assert_eq!(ranges(&[0_u32]), "0");
        assert_eq!(ranges(&[0_usize, 1, 2, 5, 4]), "0-2,5,4");
    }
}
