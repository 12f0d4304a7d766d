//! Words for what a look at processes shows.

use std::time::SystemTime;

use pagepool::{DeferredStats, Inflight};
use pagepool_watch::commands::{self, spoken};
use pagepool_watch::{Life, Observation, ProcessView, RunFolder, shown_path};

use crate::report::{grouped, in_words};

/// The message if a look found no process.
pub fn nobody_publishes(look: &Observation) -> String {
    let folder = shown_path(&look.folder);
    match look.errors.is_empty() {
        true => format!("No process publishes in {folder}."),
        false => format!("No process that can be read publishes in {folder}."),
    }
}

/// How long before a look something was.
pub fn ago(look: &Observation, then: SystemTime) -> String {
    spoken(look.at.duration_since(then).unwrap_or_default())
}

/// The folder that this user's processes publish in.
pub fn folder() -> Result<RunFolder, String> {
    RunFolder::of_user().map_err(in_words)
}

pub fn is_alive(process: &ProcessView) -> bool {
    process.life == Life::Alive
}

pub fn percent(of: f64) -> String {
    format!("{of:.2}")
}

/// Where the pages of a pool are. Places without pages are left out, except "out".
pub fn places(inflight: &Inflight) -> String {
    let some = commands::places(inflight).into_iter().filter(|(place, pages)| *pages > 0 || *place == "out");
    let named = some.map(|(place, pages)| match place {
        "frag" => format!("fragment page {}", grouped(pages)),
        _ => format!("{place} {}", grouped(pages)),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// Whether the deferred queue of a pool was ever used.
pub fn has_deferred(deferred: &DeferredStats) -> bool {
    *deferred != DeferredStats::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_without_pages_are_left_out() {
        let mut inflight = Inflight::default();
        assert_eq!(places(&inflight), "out 0");
        (inflight.cache, inflight.uncollected, inflight.out) = (5, 7, 1_234);
        assert_eq!(places(&inflight), "cache 5, uncollected 7, out 1,234");
    }
}
