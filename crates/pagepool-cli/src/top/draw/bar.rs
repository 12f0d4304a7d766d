//! The bar of places: a letter for each.

use ratatui::text::Span;

use super::theme::TopTheme;
use crate::top::rows::PLACES;

/// Draws `columns` characters. Every place with pages has at least one, if there is room.
pub fn bar(places: &[u64; PLACES.len()], columns: usize, theme: TopTheme) -> Vec<Span<'static>> {
    let parts = PLACES.iter().zip(shares(places, columns));
    let some = parts.filter(|(_, share)| *share > 0);
    let spans = some.map(|(place, share)| {
        Span::styled(place.letter.to_string().repeat(share), theme.colour(place.colour))
    });
    spans.collect()
}

/// The characters of each place: in sum `columns`, or 0 without pages.
fn shares(places: &[u64; PLACES.len()], columns: usize) -> [usize; PLACES.len()] {
    let total: u128 = places.iter().map(|&pages| u128::from(pages)).sum();
    if total == 0 {
        return [0; PLACES.len()];
    }
    let mut shares = places.map(|pages| {
        let share = (u128::from(pages) * columns as u128 / total) as usize;
        share.max((pages > 0).into())
    });
    loop {
        let sum: usize = shares.iter().sum();
        let largest = (0..PLACES.len()).max_by_key(|&at| places[at]).unwrap_or(0);
        match sum.cmp(&columns) {
            std::cmp::Ordering::Less => shares[largest] += columns - sum,
            std::cmp::Ordering::Equal => return shares,
            std::cmp::Ordering::Greater => {
                let widest = (0..PLACES.len()).max_by_key(|&at| shares[at]).unwrap_or(0);
                shares[widest] -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(places: [u64; PLACES.len()], columns: usize) -> String {
        let spans = bar(&places, columns, TopTheme { has_colours: false });
        spans.iter().map(|span| &*span.content).collect()
    }

    #[test]
    fn bars_are_proportional_with_at_least_one_character_a_place() {
        assert_eq!(drawn([50, 0, 25, 0, 0, 0, 25, 0], 8), "ccccrrww");
        assert_eq!(drawn([1_000_000, 1, 0, 0, 0, 0, 0, 1], 8), "cccccclo");
        assert_eq!(drawn([1; 8], 3).chars().count(), 3, "as many as there is room for");
        assert_eq!(drawn([0; 8], 8), "");
        assert_eq!(drawn([u64::MAX; 8], 8), "clrfduwo");
        assert_eq!(drawn([5, 0, 0, 0, 0, 0, 0, 0], 0), "");
    }
}
